// Tape observers: operation traces, and the first non-finite value.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>

#include "autograd/var.h"

namespace tapestry {

/// The name of an operation: by default the function that records it.
struct OperationName {
  OperationName(const char* name) : text(name) {}   // NOLINT: names convert on purpose
  OperationName(const std::source_location& where)  // NOLINT
      : text(where.function_name()) {}
  const char* text;

  /// "linear", even if `text` is a whole signature.
  std::string str() const;
};

/// One run of an operation.
struct TapeOperation {
  int64_t number = 0;  ///< counts this thread's operations while somebody looks on
  OperationName name;
};

/// While it lives, it observes every operation of its thread. There may be several; those made
/// first are called first. If one changes values, all later code sees the change.
class TapeObserver {
 public:
  /// `backward`: also observes the backward pass.
  explicit TapeObserver(bool backward = false);
  virtual ~TapeObserver();
  TapeObserver(const TapeObserver&) = delete;
  TapeObserver& operator=(const TapeObserver&) = delete;

  /// After an operation has computed its outputs. `recorded`: a tape keeps it, to walk back.
  /// Recomputation runs operations twice, the second time recorded.
  virtual void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                        std::span<const Var* const> outputs, bool recorded) = 0;
  /// Called when the backward pass has run the operation. `gradients` belong to the inputs that
  /// need one, with the contributions so far of this operation and others.
  virtual void walked_back(const TapeOperation& /*operation*/,
                           std::span<const std::shared_ptr<Gradient>> /*gradients*/) {}

  /// True if this thread has an observer, or one that observes the backward pass.
  static bool looks_on();
  static bool looks_back();

  // Used by the tape.
  static TapeOperation begin(OperationName name);
  static void tell_computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                            std::span<const Var* const> outputs, bool recorded);
  static void tell_walked_back(const TapeOperation& operation,
                               std::span<const std::shared_ptr<Gradient>> gradients);

 private:
  const bool backward_;
};

}  // namespace tapestry
