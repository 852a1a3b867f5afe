#include "thread_pool.h"

#include <chrono>
#include <system_error>

#include "kernels.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#if defined(__x86_64__)
#include <immintrin.h>
static inline void relax() { _mm_pause(); }
#elif defined(__aarch64__)
static inline void relax() { asm volatile("yield"); }
#else
static inline void relax() {}
#endif

namespace {
constexpr auto kSpin = std::chrono::microseconds(50);

std::atomic<unsigned> forks{0};

#if defined(__unix__) || defined(__APPLE__)
const int counted = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
#endif

template <typename Ready>
bool spin_until(Ready ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}
}  // namespace

TenutoPool::TenutoPool(int num_threads) : num_forks_(forks.load()) {
  try {
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // no more threads to be had
  }
}

bool TenutoPool::forked() const { return forks.load(std::memory_order_relaxed) != num_forks_; }

TenutoPool::~TenutoPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void TenutoPool::run_erased(int count, Call call, void* context) {
  std::lock_guard<std::mutex> one(callers_);
  count_ = count;
  call_ = call;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  bool someone_sleeps;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
    someone_sleeps = sleeping_ > 0;
  }
  if (someone_sleeps) wake_.notify_all();
  take_tasks();
  // Workers may still be at their last task. They were awake a moment ago, so this is short; yield if it is not.
  while (!spin_until([this] { return busy_.load(std::memory_order_acquire) == 0; })) std::this_thread::yield();
}

void TenutoPool::take_tasks() {
  for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) call_(context_, i);
}

void TenutoPool::work() {
  unsigned seen = 0;
  for (;;) {
    auto fresh = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(fresh)) {
      std::unique_lock<std::mutex> lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, fresh);
      --sleeping_;
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    take_tasks();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

TENUTO_API TenutoPool* tenuto_pool_new(int num_threads) { return new TenutoPool(num_threads); }
TENUTO_API void tenuto_pool_free(TenutoPool* pool) {
  if (!pool->forked()) delete pool;  // a copy's threads cannot be waited for
}
