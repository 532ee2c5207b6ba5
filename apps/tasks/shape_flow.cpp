#include "apps/tasks/shape_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/text.h"

namespace tapestry {
namespace {

/// An operation of the trace that reads a parameter.
struct Step {
  size_t call;       ///< its number in the trace
  std::string path;  ///< of the parameter, without its last part
};

/// A part of the names of parameters: "encoder.layers.0", its layer's number set apart.
struct PartName {
  std::string before, after;  ///< of the number
  int64_t number = -1;
};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

PartName split_number(const std::string& part) {
  PartName name;
  for (const std::string& piece : parts_of(part)) {
    std::string& side = name.number < 0 ? name.before : name.after;
    if (name.number < 0 && is_number(piece)) {
      name.number = std::stoll(piece);
    } else {
      side += concat(side.empty() ? "" : ".", piece);
    }
  }
  return name;
}

bool is_inside(const std::string& path, const std::string& part) {
  return path.starts_with(part) && (path.size() == part.size() || path[part.size()] == '.');
}

// True if the first `length` pieces of a path name a part of the model, not only a list of parts.
bool is_part(const std::vector<std::string>& pieces, size_t length) {
  return length == pieces.size() || !is_number(pieces[length]);
}

class Flow {
 public:
  Flow(const ParamStore& store, const OperationTrace& trace, int64_t rows)
      : calls_(trace.calls()), rows_(rows) {
    for (const OperationTrace::Call& call : calls_) made_.insert(call.output.value().raw());
    for (const Parameter& parameter : store.parameters()) {
      names_[parameter.var.value().raw()] = parameter.name;
    }
    for (size_t i = 0; i < calls_.size(); ++i) {
      for (const Var& input : calls_[i].inputs) {
        const auto found = names_.find(input.value().raw());
        if (found == names_.end()) continue;
        steps_.push_back({i, found->second.substr(0, found->second.rfind('.'))});
        break;
      }
    }
  }

  std::vector<PartCall> parts() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      const std::vector<std::string> pieces = parts_of(steps_[i].path);
      std::string part;
      for (size_t length = 1; length <= pieces.size(); ++length) {
        part += concat(length == 1 ? "" : ".", pieces[length - 1]);
        const bool whole = length == pieces.size();
        if (!whole && i > 0 && is_inside(steps_[i - 1].path, part)) continue;  // goes on
        if (is_part(pieces, length)) add(part, i, whole ? i : last_inside(part, i));
      }
    }
    std::vector<PartCall> result;
    for (Entry& entry : entries_) result.push_back(finished(entry));
    return result;
  }

 private:
  struct Entry {
    PartName name;
    std::set<int64_t> numbers;
    PartCall call;
  };

  size_t last_inside(const std::string& part, size_t step) const {
    while (step + 1 < steps_.size() && is_inside(steps_[step + 1].path, part)) ++step;
    return step;
  }

  // The inputs of an operation from the batch: values of other operations, or constants with a row
  // for each row of the batch, such as images. Tables of positions and padding do not count.
  std::vector<const Var*> values_of(const OperationTrace::Call& call) const {
    std::vector<const Var*> made, given;
    for (const Var& input : call.inputs) {
      const void* const at = input.value().raw();
      if (names_.contains(at)) continue;
      const Shape& shape = input.shape();
      if (made_.contains(at)) {
        made.push_back(&input);
      } else if (shape.rank() > 0 && shape[0] == rows_) {
        given.push_back(&input);
      }
    }
    return made.empty() ? given : made;
  }

  // Inputs of steps first to last that none of them made.
  std::vector<Shape> inputs_of(size_t first, size_t last) const {
    std::set<const void*> known;
    std::vector<Shape> inputs;
    for (size_t i = steps_[first].call; i <= steps_[last].call; ++i) {
      const std::vector<const Var*> read = values_of(calls_[i]);
      for (const Var* value : read) {
        if (known.insert(value->value().raw()).second) inputs.push_back(value->shape());
      }
      const Shape& out = calls_[i].output.shape();
      if (read.empty()) {  // a lookup: its indices are no value of the tape
        std::vector<int64_t> sizes;
        for (int axis = 0; axis + 1 < out.rank(); ++axis) sizes.push_back(out[axis]);
        inputs.emplace_back(sizes.data(), static_cast<int>(sizes.size()));
      }
      known.insert(calls_[i].output.value().raw());
    }
    return inputs;
  }

  void add(const std::string& part, size_t first, size_t last) {
    PartName name = split_number(part);
    PartCall call{part, inputs_of(first, last), calls_[steps_[last].call].output.shape()};
    for (Entry& entry : entries_) {
      if (entry.name.before != name.before || entry.name.after != name.after ||
          entry.call.inputs != call.inputs || !(entry.call.output == call.output)) {
        continue;
      }
      entry.numbers.insert(name.number);
      ++entry.call.times;
      return;
    }
    entries_.push_back({name, {name.number}, std::move(call)});
  }

  static PartCall finished(Entry& entry) {
    PartCall call = std::move(entry.call);
    call.times /= std::ssize(entry.numbers);
    if (entry.numbers.size() > 1) {
      call.part =
          concat(entry.name.before, '.', *entry.numbers.begin(), '-', *entry.numbers.rbegin(),
                 entry.name.after.empty() ? "" : ".", entry.name.after);
    }
    return call;
  }

  const std::vector<OperationTrace::Call>& calls_;
  const int64_t rows_;
  std::unordered_map<const void*, std::string> names_;  ///< of the parameters
  std::set<const void*> made_;                          ///< by an operation
  std::vector<Step> steps_;
  std::vector<Entry> entries_;
};

std::string text_of(const Shape& shape, const std::map<int64_t, std::string>& letters) {
  std::vector<std::string> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto found = letters.find(shape[axis]);
    sizes.push_back(found == letters.end() ? std::to_string(shape[axis]) : found->second);
  }
  return concat('(', join(sizes, ", "), ')');
}

Tensor ids(int64_t rows, int64_t length) { return Tensor::full({rows, length}, 1, DType::kInt32); }

Tensor lengths(int64_t rows, int64_t length) {
  return Tensor::full({rows}, static_cast<double>(length), DType::kInt32);
}

template <class Model>
void run_translation(const Model& model, const DryBatch& batch) {
  const Tensor sizes = lengths(batch.rows, batch.source);
  const Var memory = model.encode(ids(batch.rows, batch.source), sizes);
  model.logits(model.decode(ids(batch.rows, batch.target), memory, sizes));
}

}  // namespace

std::vector<PartCall> part_calls(const ParamStore& store, const OperationTrace& trace,
                                 const DryBatch& batch) {
  return Flow(store, trace, batch.rows).parts();
}

DryBatch dry_batch(const ParamStore& store, const ModelOptions& options) {
  std::set<int64_t> taken;
  for (const Parameter& parameter : store.parameters()) {
    const Shape& shape = parameter.var.shape();
    for (int axis = 0; axis < shape.rank(); ++axis) taken.insert(shape[axis]);
  }
  int64_t next = 2;
  const auto size = [&] {
    do {
      ++next;
    } while (taken.contains(next));
    return next;
  };
  const int64_t target = std::min(size(), options.longest_sequence());
  const int64_t source = std::min(size(), options.longest_sequence());
  return {.rows = size(), .source = source, .target = target};
}

std::string lines_of(const std::vector<PartCall>& calls, const DryBatch& batch) {
  const std::map<int64_t, std::string> letters = {
      {batch.rows, "B"}, {batch.source, "S"}, {batch.target, "T"}};
  std::string lines;
  for (const PartCall& call : calls) {
    std::vector<std::string> inputs;
    for (const Shape& input : call.inputs) inputs.push_back(text_of(input, letters));
    lines += fmt::format("{:<48} {} -> {}{}\n", call.part, join(inputs, ", "),
                         text_of(call.output, letters),
                         call.times > 1 ? fmt::format("  {} times", call.times) : "");
  }
  return lines;
}

void dry_run(const EncoderDecoder& model, const DryBatch& batch, const Config&) {
  run_translation(model, batch);
}

void dry_run(const RnnAttention& model, const DryBatch& batch, const Config&) {
  run_translation(model, batch);
}

void dry_run(const LanguageModel& model, const DryBatch& batch, const Config&) {
  model.logits(model.hidden(ids(batch.rows, batch.target)));
}

void dry_run(const SequenceClassifier& model, const DryBatch& batch, const Config&) {
  model(ids(batch.rows, batch.target), lengths(batch.rows, batch.target));
}

void dry_run(const SpanExtractor& model, const DryBatch& batch, const Config&) {
  model(ids(batch.rows, batch.target), lengths(batch.rows, batch.target));
}

void dry_run(const TokenClassifier& model, const DryBatch& batch, const Config&) {
  model.logits(model.hidden(ids(batch.rows, batch.target), lengths(batch.rows, batch.target)));
}

void dry_run(const TextEmbedder& model, const DryBatch& batch, const Config&) {
  model(ids(batch.rows, batch.target), lengths(batch.rows, batch.target));
}

void dry_run(const ImageClassifier& model, const DryBatch& batch, const Config& config) {
  const ImageSize& size = config.data.image.size;
  model(Tensor::zeros({batch.rows, size.height, size.width, size.channels},
                      numbers_of(config, ModelUse::kAnswers, Device{}).dtype));
}

}  // namespace tapestry
