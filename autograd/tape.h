// The tape: a flat list of the operations of one forward pass, walked backwards once.
#pragma once

#include <array>
#include <concepts>
#include <initializer_list>
#include <new>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/observer.h"
#include "autograd/var.h"
#include "core/allocator.h"

namespace tapestry {

/// Records while it is alive (on the thread that made it), so evaluation and decoding need no
/// guard. Tapes nest: the innermost one records. Dropout and other training-only behaviour is on
/// exactly while a tape is alive.
class Tape {
 public:
  /// `random` names the draws of this pass: (seed, step), and the first stream to use.
  explicit Tape(PhiloxKey random = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// The recording tape of this thread, or null.
  static Tape* current();

  /// The key of the next random operation of this pass: streams are numbered in the order of calls.
  PhiloxKey next_random();

  /// Walks the tape from its end. Each node is popped after it ran, so activations and intermediate
  /// gradients are freed on the way; the leaves accumulate gradients. `loss` has one element and
  /// gets the gradient `seed`. The tape is empty afterwards. Throws if loss was not recorded here.
  void backward(const Var& loss, double seed = 1.0);
  /// The same from any value, with the gradient that reaches it. `gradient` is not changed.
  void backward(const Var& output, const Tensor& gradient);

  size_t size() const { return nodes_.size(); }

  /// True while backward repeats a pass (autograd/recompute.h). Side effects of the first pass,
  /// such as running statistics, must not happen twice.
  bool repeats() const { return repeats_; }

  /// Records an operation: gives `output` a gradient and keeps `backward`, which is called with
  /// output's gradient (owned by the callee) if any reached it. Does nothing unless a tape is alive
  /// and one of the inputs needs a gradient.
  /// Observers are called either way: call it after the outputs are computed.
  template <class F>
  static void record(std::initializer_list<const Var*> inputs, Var& output, F backward,
                     OperationName name = std::source_location::current()) {
    record_outputs(std::span(inputs.begin(), inputs.size()), std::array{&output},
                   std::move(backward), name);
  }
  template <class F>
  static void record(std::span<const Var* const> inputs, Var& output, F backward,
                     OperationName name = std::source_location::current()) {
    record_outputs(inputs, std::array{&output}, std::move(backward), name);
  }
  /// With two outputs: an argument of `backward` is undefined when no gradient reached that output.
  template <class F>
  static void record(std::initializer_list<const Var*> inputs, Var& first, Var& second, F backward,
                     OperationName name = std::source_location::current()) {
    record_outputs(std::span(inputs.begin(), inputs.size()), std::array{&first, &second},
                   std::move(backward), name);
  }
  /// Whether an operation on these inputs would be recorded, so that it must save what backward
  /// needs.
  static bool records(std::span<const Var* const> inputs);
  template <std::same_as<Var>... V>
  static bool records(const V&... inputs) {
    return records(std::array<const Var*, sizeof...(V)>{&inputs...});
  }

 private:
  // A node owns its closure in memory of the caching allocator: no malloc in a warm step.
  struct Node {
    void* closure;
    int64_t bytes;
    std::array<const Gradient*, 2> outputs;  // the second may be null
    void (*run)(void* closure);
    void (*destroy)(void* closure);
  };

  template <size_t N, class F>
  struct Closure {
    std::array<std::shared_ptr<Gradient>, N> outputs;
    F backward;

    static void run(void* self) {
      auto& closure = *static_cast<Closure*>(self);
      std::array<Tensor, N> gradients;
      bool any = false;
      for (size_t i = 0; i < N; ++i) {
        if (!closure.outputs[i]->filled()) continue;
        gradients[i] = closure.outputs[i]->take();
        any = true;
      }
      if (any) std::apply(closure.backward, std::move(gradients));
    }
    static void destroy(void* self) { static_cast<Closure*>(self)->~Closure(); }
  };

  template <size_t N, class F>
  static void record_outputs(std::span<const Var* const> inputs, const std::array<Var*, N>& outputs,
                             F backward, OperationName name) {
    const bool recorded = records(inputs);
    if (recorded) {
      current()->note_uses(inputs);
      current()->add_node(outputs, std::move(backward));
    }
    if (TapeObserver::looks_on()) {
      const std::array<const Var*, 2> both{outputs[0], outputs[N - 1]};
      note_operation(name, inputs, std::span(both).first(N), recorded);
    }
  }
  static void note_operation(OperationName name, std::span<const Var* const> inputs,
                             std::span<const Var* const> outputs, bool recorded);

  template <size_t N, class F>
  void add_node(const std::array<Var*, N>& outputs, F backward) {
    using Record = Closure<N, F>;
    static_assert(alignof(Record) <= 64);
    void* memory = host_allocate(sizeof(Record));
    auto* closure = new (memory) Record{{}, std::move(backward)};
    for (size_t i = 0; i < N; ++i) {
      outputs[i]->gradient_ =
          std::allocate_shared<Gradient>(HostAllocator<Gradient>(), outputs[i]->value_);
      closure->outputs[i] = outputs[i]->gradient_;
    }
    static_assert(N == 1 || N == 2);
    nodes_.push_back(
        {memory,
         sizeof(Record),
         {closure->outputs.front().get(), N == 2 ? closure->outputs.back().get() : nullptr},
         &Record::run,
         &Record::destroy});
  }

  template <class F>
  friend Var recompute(F f);
  friend class NoTape;

  // A use of a value with a listener, by node number `node`.
  struct Use {
    size_t node;
    std::shared_ptr<Gradient> gradient;
  };

  /// Counts the uses by the node that comes next. Uses in a paused pass count for the node that
  /// will repeat it.
  void note_uses(std::span<const Var* const> inputs) {
    for (const Var* input : inputs) {
      if (input->needs_grad() && input->gradient_->listener_ != nullptr) note_use(*input);
    }
  }
  void note_use(const Var& input);
  /// Takes back the uses by removed nodes. `walked`: their contributions were made, so listeners
  /// are called.
  void release_uses(bool walked);

  // Arguments of the observers' call for a node that has run.
  struct Watched {
    size_t node;
    TapeOperation operation;
    std::vector<std::shared_ptr<Gradient>> gradients;
  };

  bool holds(const Var& value) const;
  /// Walks the tape from its end. Some of its outputs already have gradients.
  void walk();
  void tell_observers();
  void pop();

  std::vector<Node, HostAllocator<Node>> nodes_;
  std::vector<Use, HostAllocator<Use>> uses_;  // their nodes ascend
  std::vector<Watched> watched_;               // for observers, too
  PhiloxKey random_;
  Tape* outer_;
  bool paused_ = false;   // recompute() runs a function whose operations are not recorded
  bool skipped_ = false;  // one of them would have been
  bool repeats_ = false;
};

/// While it lives no tape of this thread records, as if none were alive: the pass of a model that
/// does not learn, within the pass of one that does. The tape's random streams stay where they are.
class NoTape {
 public:
  NoTape();
  ~NoTape();
  NoTape(const NoTape&) = delete;
  NoTape& operator=(const NoTape&) = delete;

 private:
  Tape* const tape_;
};

}  // namespace tapestry
