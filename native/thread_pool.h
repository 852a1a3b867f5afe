// Threads that share one task list at a time. Between lists they spin for some microseconds, since the next list of a
// step comes at once, and then sleep: an idle engine uses no processor time.
//
// Where the system gives fewer threads than asked for, those do the work. A process made by fork has none of them: there
// the caller does all of it, and the pool's memory, copied with its locks in any state, is left alone.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

struct TenutoPool {
  explicit TenutoPool(int num_threads);
  ~TenutoPool();

  // Call task(i) for i in 0 .. count - 1, each once, on any thread; returns when all are done. One caller at a time.
  template <typename Task>
  void run(int count, Task&& task) {
    if (count <= 0) return;
    if (workers_.empty() || count == 1 || forked()) {
      for (int i = 0; i < count; ++i) task(i);
      return;
    }
    auto call = [](void* context, int i) { (*static_cast<std::remove_reference_t<Task>*>(context))(i); };
    run_erased(count, call, &task);
  }

  bool forked() const;  // this process is a copy of the one that made the pool
  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  using Call = void (*)(void*, int);
  void run_erased(int count, Call call, void* context);
  void work();
  void take_tasks();

  const unsigned num_forks_;  // of this process's line when the pool was made
  std::vector<std::thread> workers_;
  std::mutex callers_;  // one list at a time, whoever calls
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> generation_{0};
  std::atomic<int> next_{0};
  std::atomic<int> busy_{0};  // workers that have not finished the current list
  std::atomic<bool> stop_{false};
  int count_ = 0;
  Call call_ = nullptr;
  void* context_ = nullptr;
  int sleeping_ = 0;
};
