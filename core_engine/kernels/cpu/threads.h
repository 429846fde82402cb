// Which core each thread of the pool stays on. A thread looks when it enters a step and binds itself once, since libgomp
// ends the threads that a smaller region leaves over and starts new ones for the next. The thread that calls is never
// bound: whatever it starts, threads and processes, would inherit that. With one thread a core it has its own all the same.
#pragma once
#include <omp.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace trilemma {

#if defined(__linux__)
struct Binding {
  std::vector<cpu_set_t> of_thread;
  long version = 0;  // threads that have seen it have nothing to do
};
inline Binding binding;

// Bind the calling thread, which is `number` of a team. Returns 0, or errno.
inline int stay_on_core(long number) {
  static thread_local long seen = 0;
  if (seen == binding.version) return 0;
  seen = binding.version;
  if (number == 0 || number >= long(binding.of_thread.size())) return 0;
  return sched_setaffinity(0, sizeof(cpu_set_t), &binding.of_thread[number]) ? errno : 0;
}

// Thread i of the pool stays on core cores[i]; cores null: every thread wherever the caller may run. Returns 0, or errno.
inline int bind_threads(const int32_t* cores, long threads) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all)) return errno;
  binding.of_thread.assign(threads, all);
  for (long i = 0; cores && i < threads; ++i) {
    if (cores[i] >= CPU_SETSIZE) return ERANGE;
    CPU_ZERO(&binding.of_thread[i]);
    CPU_SET(cores[i], &binding.of_thread[i]);
  }
  ++binding.version;
  int error = 0;
#pragma omp parallel num_threads(threads) reduction(max : error)
  error = stay_on_core(omp_get_thread_num());
  return error;
}
#else
inline int stay_on_core(long) { return 0; }
inline int bind_threads(const int32_t*, long) { return ENOSYS; }
#endif

}  // namespace trilemma
