// Which of the variants of a function runs: every one is compiled for each instruction set, in a namespace of its name.
#pragma once
#include <string>

namespace noisette {

// `f` of the variant that is asked for, null where this machine or this build has none of that name.
#ifdef NOISETTE_X86
#define NOISETTE_PICK(isa, f) pick(isa, &avx512::f, &avx2::f, &plain::f)
template <class F>
F pick(const std::string& isa, F avx512, F avx2, F plain) {
  if (isa == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return avx512;
  if (isa == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2;
  return isa == "plain" ? plain : nullptr;
}
#else
#define NOISETTE_PICK(isa, f) pick(isa, &plain::f)
template <class F>
F pick(const std::string& isa, F plain) {
  return isa == "plain" ? plain : nullptr;
}
#endif

}  // namespace noisette
