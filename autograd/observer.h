// Who looks on while tapes record and walk back: traces, and the search for numbers that are none.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>

#include "autograd/var.h"

namespace tapestry {

/// What an operation is called: the function that records it, unless it says otherwise.
struct OperationName {
  OperationName(const char* name) : text(name) {}   // NOLINT: names convert on purpose
  OperationName(const std::source_location& where)  // NOLINT
      : text(where.function_name()) {}
  const char* text;

  /// "linear", also where `text` is a whole signature.
  std::string str() const;
};

/// One run of an operation.
struct TapeOperation {
  int64_t number = 0;  ///< counts this thread's operations while somebody looks on
  OperationName name;
};

/// While it lives, it hears of every operation of its thread. Several may: those made first hear
/// first. What they do to the values is seen by all that comes later.
class TapeObserver {
 public:
  /// `backward`: whether it hears of the way back, too.
  explicit TapeObserver(bool backward = false);
  virtual ~TapeObserver();
  TapeObserver(const TapeObserver&) = delete;
  TapeObserver& operator=(const TapeObserver&) = delete;

  /// After an operation has computed its outputs. `recorded`: a tape keeps it, to walk back.
  /// Recomputation runs operations twice, the second time recorded.
  virtual void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                        std::span<const Var* const> outputs, bool recorded) = 0;
  /// After the tape has walked back over it: `gradients` are those of inputs that need one, with
  /// what this operation and others contributed so far.
  virtual void walked_back(const TapeOperation& /*operation*/,
                           std::span<const std::shared_ptr<Gradient>> /*gradients*/) {}

  /// Whether this thread has one, or one that hears of the way back.
  static bool looks_on();
  static bool looks_back();

  // For the tape.
  static TapeOperation begin(OperationName name);
  static void tell_computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                            std::span<const Var* const> outputs, bool recorded);
  static void tell_walked_back(const TapeOperation& operation,
                               std::span<const std::shared_ptr<Gradient>> gradients);

 private:
  const bool backward_;
};

}  // namespace tapestry
