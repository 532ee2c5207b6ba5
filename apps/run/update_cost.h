// The arithmetic and memory traffic of an update, and the time that a machine needs for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "apps/config/config.h"
#include "autograd/observer.h"

namespace tapestry {

/// Work of an update.
struct UpdateCost {
  double flops = 0;            ///< of matrix products, 2 a multiply-add
  double bytes = 0;            ///< that all else reads and writes
  double largest_factors = 0;  ///< bytes of the two matrices of a product, at most

  UpdateCost& operator+=(const UpdateCost& other) {
    flops += other.flops, bytes += other.bytes;
    largest_factors = std::max(largest_factors, other.largest_factors);
    return *this;
  }
};

/// Adds up the work of a forward and a backward pass from the shapes of its operations (in a dry
/// run, for example). Attention counts in full, whatever a mask hides.
class CostCounter : public TapeObserver {
 public:
  const UpdateCost& cost() const { return cost_; }

  void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                std::span<const Var* const> outputs, bool recorded) override;

 private:
  UpdateCost cost_;
};

/// Rates of this machine with the threads of the process, from a probe of a fifth of a second.
struct MachineRates {
  double flops_per_s = 0;  ///< of products
  double bytes_per_s = 0;  ///< of reading and writing memory
};
MachineRates measure_rates(const Numbers& numbers);

/// Seconds: products at four fifths of the rate of large square ones, then the bytes.
struct UpdateSeconds {
  double products = 0, memory = 0;
  double total() const { return products + memory; }
};
UpdateSeconds seconds_of(const UpdateCost& cost, const MachineRates& rates);

}  // namespace tapestry
