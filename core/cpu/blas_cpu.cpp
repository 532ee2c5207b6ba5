#include "core/cpu/blas_cpu.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "core/cpu/blas.h"
#include "core/cpu/blas_cores.h"
#include "core/cpu/cpu_traits.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

// CBLAS's enumerators; its standard fixes their values.
constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);
using Dgemm = void (*)(int, int, int, int, int, int, double, const double*, int, const double*, int,
                       double, double*, int);

constexpr const char* kLibrary = "libopenblas.so.0";
constexpr const char* kCoreVariable = "OPENBLAS_CORETYPE";

class OpenBlas {
 public:
  OpenBlas() {
    check_room(num_threads());
    const CpuTraits& cpu = cpu_traits();
    const char* const variable = std::getenv(kCoreVariable);
    const std::string forced = variable == nullptr ? "" : variable;
    const std::string wanted = forced.empty() ? openblas_core_for(cpu) : forced;
    // The library reads both variables in its constructor and never again.
    if (wanted.empty()) {
      unsetenv(kCoreVariable);
    } else {
      setenv(kCoreVariable, wanted.c_str(), 1);
    }
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    handle_ = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      fail(ErrorKind::kRuntime,
           "[blas] expected OpenBLAS (Debian package libopenblas0), got: ", dlerror(), '.');
    }
    sgemm = symbol<Sgemm>("cblas_sgemm");
    dgemm = symbol<Dgemm>("cblas_dgemm");
    symbol<void (*)(int)>("openblas_set_num_threads")(1);
    const std::string core = symbol<char* (*)()>("openblas_get_corename")();
    const std::string library = version(symbol<char* (*)()>("openblas_get_config")());
    if (!forced.empty()) check_forced_core({forced, core, library}, cpu);
    description = concat(library, ", core ", core);
    warning = slow_core_warning(core, cpu, !forced.empty());
  }

  Sgemm sgemm;
  Dgemm dgemm;
  std::string description;
  std::string warning;

 private:
  // OpenBLAS 0.3 asks for ever if a limit leaves no room for the buffer of a thread's first
  // product.
  static void check_room(int threads) {
    constexpr size_t kBuffer = size_t{128} << 20;  // of address space, not of memory
    const size_t bytes = kBuffer * static_cast<size_t>(threads);
    void* const room =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
      fail(ErrorKind::kOutOfMemory, "[blas] ", threads, threads == 1 ? " thread" : " threads",
           " of OpenBLAS must find ", bytes >> 20,
           " MB of address space, and the limit of this process (ulimit -v) leaves less.");
    }
    munmap(room, bytes);
  }

  template <class F>
  F symbol(const char* name) {
    void* address = dlsym(handle_, name);
    check(address != nullptr, "blas", "expected ", name, " in ", kLibrary, ", got: ", dlerror(),
          '.');
    return reinterpret_cast<F>(address);
  }

  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." -> "OpenBLAS 0.3.21"
  static std::string version(const std::string& config) {
    const size_t name_end = config.find(' ');
    if (name_end == std::string::npos) return config;
    return config.substr(0, config.find(' ', name_end + 1));
  }

  void* handle_ = nullptr;
};

// Never unloaded: kernels may run until the very end of the process.
const OpenBlas& openblas() {
  static const OpenBlas* instance = new OpenBlas;
  return *instance;
}

}  // namespace

template <>
void blas_product(const BlasProduct<float>& p) {
  openblas().sgemm(kRowMajor, p.trans_a ? kTrans : kNoTrans, p.trans_b ? kTrans : kNoTrans, p.m,
                   p.n, p.k, static_cast<float>(p.alpha), p.a, p.lda, p.b, p.ldb,
                   static_cast<float>(p.beta), p.c, p.ldc);
}

template <>
void blas_product(const BlasProduct<double>& p) {
  openblas().dgemm(kRowMajor, p.trans_a ? kTrans : kNoTrans, p.trans_b ? kTrans : kNoTrans, p.m,
                   p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
}

std::string blas_description() { return openblas().description; }
std::string blas_warning() { return openblas().warning; }

}  // namespace tapestry
