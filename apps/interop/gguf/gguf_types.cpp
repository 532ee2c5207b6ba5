#include "apps/interop/gguf/gguf_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "apps/checkpoint/half.h"
#include "apps/checkpoint/stored_type.h"
#include "core/base/text.h"
#include "core/bfloat16.h"

namespace tapestry::interop {
namespace {

using Byte = unsigned char;

constexpr int kBlock = 32;
constexpr int kSuperBlock = 256;  // of the types whose names end in K

template <class T>
T load(const Byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(T value, Byte* at) {
  std::memcpy(at, &value, sizeof value);
}
float load_half(const Byte* at) { return half_value(load<uint16_t>(at)); }

void read_f32(const Byte* block, float* values) { *values = load<float>(block); }
void write_f32(const float* values, Byte* block) { store(*values, block); }
void read_f16(const Byte* block, float* values) { *values = load_half(block); }
void write_f16(const float* values, Byte* block) { store(half_bits(*values), block); }
void read_bf16(const Byte* block, float* values) {
  *values = std::bit_cast<float>(uint32_t{load<uint16_t>(block)} << 16);
}
void write_bf16(const float* values, Byte* block) { store(BFloat16(*values), block); }

// Two numbers of four bits in a byte: the first half of a block lies in the low ones.
int low(Byte byte) { return byte & 15; }
int high(Byte byte) { return byte >> 4; }

// Of the smallest scales it is infinite; as halves they are zero.
float inverse_of(float scale) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return std::isfinite(inverse) ? inverse : 0;
}

// Scale, 32 numbers of four bits around 8.
void read_q4_0(const Byte* block, float* values) {
  const float scale = load_half(block);
  for (int i = 0; i < kBlock / 2; ++i) {
    values[i] = static_cast<float>(low(block[2 + i]) - 8) * scale;
    values[i + kBlock / 2] = static_cast<float>(high(block[2 + i]) - 8) * scale;
  }
}

// The number of the largest magnitude becomes -8.
void write_q4_0(const float* values, Byte* block) {
  float most = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::abs(values[i]) > std::abs(most)) most = values[i];
  }
  const float scale = most / -8, inverse = inverse_of(scale);
  store(half_bits(scale), block);
  const auto number = [&](float value) {
    return std::min(15, static_cast<int>(static_cast<int8_t>(value * inverse + 8.5f)));
  };
  for (int i = 0; i < kBlock / 2; ++i) {
    block[2 + i] = static_cast<Byte>(number(values[i]) | number(values[i + kBlock / 2]) << 4);
  }
}

// Scale, least value, 32 numbers of four bits.
void read_q4_1(const Byte* block, float* values) {
  const float scale = load_half(block), least = load_half(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    values[i] = static_cast<float>(low(block[4 + i])) * scale + least;
    values[i + kBlock / 2] = static_cast<float>(high(block[4 + i])) * scale + least;
  }
}

// The fifth bits of 32 numbers are one integer.
int fifth(uint32_t bits, int i) { return static_cast<int>(bits >> i & 1) << 4; }

void read_q5_0(const Byte* block, float* values) {
  const float scale = load_half(block);
  const auto fifths = load<uint32_t>(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    const Byte both = block[6 + i];
    values[i] = static_cast<float>((low(both) | fifth(fifths, i)) - 16) * scale;
    values[i + kBlock / 2] =
        static_cast<float>((high(both) | fifth(fifths, i + kBlock / 2)) - 16) * scale;
  }
}

void read_q5_1(const Byte* block, float* values) {
  const float scale = load_half(block), least = load_half(block + 2);
  const auto fifths = load<uint32_t>(block + 4);
  for (int i = 0; i < kBlock / 2; ++i) {
    const Byte both = block[8 + i];
    values[i] = static_cast<float>(low(both) | fifth(fifths, i)) * scale + least;
    values[i + kBlock / 2] =
        static_cast<float>(high(both) | fifth(fifths, i + kBlock / 2)) * scale + least;
  }
}

void read_q8_0(const Byte* block, float* values) {
  const float scale = load_half(block);
  for (int i = 0; i < kBlock; ++i) {
    values[i] = static_cast<float>(load<int8_t>(block + 2 + i)) * scale;
  }
}

// The number of the largest magnitude becomes 127 or -127; halves are rounded away from zero.
void write_q8_0(const float* values, Byte* block) {
  float most = 0;
  for (int i = 0; i < kBlock; ++i) most = std::max(most, std::abs(values[i]));
  const float scale = most / 127, inverse = inverse_of(scale);
  store(half_bits(scale), block);
  for (int i = 0; i < kBlock; ++i) {
    store(static_cast<int8_t>(std::round(values[i] * inverse)), block + 2 + i);
  }
}

// Eight scales and eight least values of six bits each, in twelve bytes: the first four of both
// have a byte of their own, whose two spare bits belong to the last four.
struct SixBits {
  int scale, least;
};
SixBits six_bits(const Byte* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, (packed[i + 4] >> 4) | (packed[i] >> 6)
                                                                                       << 4};
}

// Scale of scales, scale of least values, the scales, 256 numbers of four bits, and before these
// for Q5_K their fifth bits: bit k of byte j is of number 32 k + j.
template <bool kFive>
void read_four_bits(const Byte* block, float* values) {
  const float scales = load_half(block), leasts = load_half(block + 2);
  const Byte* const fifths = block + 16;
  const Byte* const numbers = kFive ? fifths + 32 : fifths;
  for (int part = 0; part < kSuperBlock / kBlock; ++part) {
    const SixBits six = six_bits(block + 4, part);
    const float scale = scales * static_cast<float>(six.scale);
    const float least = leasts * static_cast<float>(six.least);
    for (int i = 0; i < kBlock; ++i) {
      const Byte both = numbers[part / 2 * kBlock + i];
      int number = part % 2 == 0 ? low(both) : high(both);
      if (kFive) number |= (fifths[i] >> part & 1) << 4;
      *values++ = scale * static_cast<float>(number) - least;
    }
  }
}

// The low four bits of 256 numbers, their high two, sixteen scales, a scale of scales. Each half of
// the numbers is four rows of 32.
void read_q6_k(const Byte* block, float* values) {
  const Byte *const fours = block, *const twos = block + 128, *const scales = block + 192;
  const float scale = load_half(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, row = i % 128 / kBlock, column = i % kBlock;
    const Byte both = fours[half * 64 + row % 2 * kBlock + column];
    const int two = twos[half * kBlock + column] >> 2 * row & 3;
    const int number = ((row < 2 ? low(both) : high(both)) | two << 4) - 32;
    const float own = scale * static_cast<float>(load<int8_t>(scales + i / 16));
    values[i] = own * static_cast<float>(number);
  }
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, read_f32, write_f32, infinite_from(StoredType::kF32)},
    {1, "F16", 1, 2, read_f16, write_f16, infinite_from(StoredType::kF16)},
    {30, "BF16", 1, 2, read_bf16, write_bf16, infinite_from(StoredType::kBF16)},
    {8, "Q8_0", kBlock, 34, read_q8_0, write_q8_0, 127 * infinite_from(StoredType::kF16)},
    {2, "Q4_0", kBlock, 18, read_q4_0, write_q4_0, 8 * infinite_from(StoredType::kF16)},
    {3, "Q4_1", kBlock, 20, read_q4_1},
    {6, "Q5_0", kBlock, 22, read_q5_0},
    {7, "Q5_1", kBlock, 24, read_q5_1},
    {12, "Q4_K", kSuperBlock, 144, read_four_bits<false>},
    {13, "Q5_K", kSuperBlock, 176, read_four_bits<true>},
    {14, "Q6_K", kSuperBlock, 210, read_q6_k},
    // Known by name only.
    {9, "Q8_1"},
    {10, "Q2_K"},
    {11, "Q3_K"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4"},
    {40, "NVFP4"},
    {41, "Q1_0"},
};

}  // namespace

const GgufType &kGgufF32 = kTypes[0], &kGgufF16 = kTypes[1], &kGgufBF16 = kTypes[2],
               &kGgufQ8_0 = kTypes[3], &kGgufQ4_0 = kTypes[4];

const GgufType* find_gguf_type(uint32_t id) {
  const auto* const found = std::ranges::find(kTypes, id, &GgufType::id);
  return found == std::end(kTypes) ? nullptr : found;
}

const GgufType* find_gguf_type(const std::string& name) {
  const auto* const found = std::ranges::find(kTypes, name, &GgufType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string read_gguf_types() {
  std::vector<std::string> names;
  for (const GgufType& type : kTypes) {
    if (type.read != nullptr) names.emplace_back(type.name);
  }
  return join(names, ", ");
}

}  // namespace tapestry::interop
