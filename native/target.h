// Between TENUTO_TARGET("...") and TENUTO_TARGET_END, functions may use more instructions than the rest of the library.
// System headers come before. Clang leaves lambdas out.
#pragma once

#define TENUTO_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define TENUTO_TARGET(features) \
  TENUTO_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define TENUTO_TARGET_END TENUTO_PRAGMA(clang attribute pop)
#else
#define TENUTO_TARGET(features) TENUTO_PRAGMA(GCC push_options) TENUTO_PRAGMA(GCC target(features))
#define TENUTO_TARGET_END TENUTO_PRAGMA(GCC pop_options)
#endif

#if defined(__ARM_FEATURE_DOTPROD)  // everything may use it
#define TENUTO_TARGET_NEON
#define TENUTO_TARGET_NEON_END
#else
#define TENUTO_TARGET_NEON TENUTO_TARGET("arch=armv8.2-a+dotprod")
#define TENUTO_TARGET_NEON_END TENUTO_TARGET_END
#endif
