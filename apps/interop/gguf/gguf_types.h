// The types of tensors in GGUF files: a row of numbers is blocks of a fixed number of them, each
// with its own scale. Source: ggml's ggml-common.h and ggml-quants.c (the reference code).
#pragma once

#include <cstdint>
#include <string>

namespace tapestry::interop {

struct GgufType {
  uint32_t id;          ///< in the file
  const char* name;     ///< in their words
  int64_t numbers = 0;  ///< of a block
  uint64_t bytes = 0;   ///< of a block
  /// One block to `numbers` floats. Null: Tapestry does not read the type.
  void (*read)(const unsigned char* block, float* values) = nullptr;
  /// Back. Null: Tapestry does not write it.
  void (*write)(const float* values, unsigned char* block) = nullptr;
  double limit = 0;  ///< of what is written: numbers from here on have no place in a block

  /// Bytes of `count` numbers, which are whole blocks.
  uint64_t bytes_of(int64_t count) const { return static_cast<uint64_t>(count / numbers) * bytes; }
};

/// Null if no type has this number.
const GgufType* find_gguf_type(uint32_t id);
const GgufType* find_gguf_type(const std::string& name);
/// The names of the types that Tapestry reads: "F32, F16, ...".
std::string read_gguf_types();

extern const GgufType &kGgufF32, &kGgufF16, &kGgufBF16, &kGgufQ8_0, &kGgufQ4_0;

}  // namespace tapestry::interop
