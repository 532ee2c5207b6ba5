#include "core/distributed/operations.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <set>
#include <span>

#include "core/allocator.h"
#include "core/base/error.h"
#include "core/cpu/cores.h"
#include "core/kernels/tree_add.h"

namespace tapestry {

std::vector<Stage> stages_of(int rank, const std::vector<std::string>& hosts) {
  const int ranks = static_cast<int>(hosts.size());
  int local = 1;  // ranks on the first host
  while (local < ranks && hosts[static_cast<size_t>(local)] == hosts[0]) ++local;
  bool even = local > 1 && local < ranks && ranks % local == 0 &&
              std::has_single_bit(static_cast<unsigned>(local));
  for (int r = 0; even && r < ranks; ++r) {
    even = hosts[static_cast<size_t>(r)] == hosts[static_cast<size_t>(r / local * local)];
  }
  const std::set<std::string> names(hosts.begin(), hosts.end());
  even = even && static_cast<int>(names.size()) == ranks / local;
  if (!even) return {stage_of_all(rank, ranks)};
  Stage inside{{}, rank % local}, between{{}, rank / local};
  for (int i = 0; i < local; ++i) inside.ranks.push_back(rank / local * local + i);
  for (int r = rank % local; r < ranks; r += local) between.ranks.push_back(r);
  return {inside, between};
}

Stage stage_of_all(int rank, int ranks) {
  Stage all{{}, rank};
  for (int r = 0; r < ranks; ++r) all.ranks.push_back(r);
  return all;
}

int owned_slice(const std::vector<Stage>& stages) {
  int slice = 0;
  for (const Stage& stage : stages) {
    slice = slice * static_cast<int>(stage.ranks.size()) + stage.place;
  }
  return slice;
}

std::vector<ExchangeStep> exchange_steps(Exchange exchange, const Bucket& bucket,
                                         const std::vector<Stage>& stages) {
  std::vector<ExchangeStep> down, steps;
  auto* block = static_cast<char*>(bucket.data);
  int64_t elements = bucket.elements;
  for (const Stage& stage : stages) {
    const auto ranks = static_cast<int64_t>(stage.ranks.size());
    check(elements % ranks == 0, "communicator", "a bucket of ", bucket.elements,
          " elements cannot be cut into equal slices.");
    elements /= ranks;
    down.push_back({&stage, block, elements * size_of(bucket.dtype), false});
    block = down.back().own();
  }
  if (exchange != Exchange::kAllGather) steps = down;
  if (exchange == Exchange::kReduceScatter) return steps;
  for (auto step = down.rbegin(); step != down.rend(); ++step) {
    step->gathers = true;
    steps.push_back(*step);
  }
  return steps;
}

std::vector<int> Operation::awaited() const {
  std::vector<int> ranks;
  for (const Pending& pending : pending_) {
    if (pending.from >= 0) ranks.push_back(pending.from);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

namespace {

// MPI counts bytes in an int: a longer message would arrive in part.
void check_message(int64_t bytes) {
  check(bytes <= Transport::kLargestMessage, "communicator", "expected messages of at most ",
        Transport::kLargestMessage, " bytes, got ", bytes, '.');
}

}  // namespace

void Operation::send(Transport& transport, int to, int tag, const void* data, int64_t bytes) {
  check_message(bytes);
  pending_.push_back({transport.send(to, tag, data, bytes), -1});
}

void Operation::receive(Transport& transport, int from, int tag, void* data, int64_t bytes) {
  check_message(bytes);
  pending_.push_back({transport.receive(from, tag, data, bytes), from});
}

bool Operation::all_done(Transport& transport) {
  std::erase_if(pending_, [&](const Pending& pending) { return transport.done(*pending.request); });
  return pending_.empty();
}

namespace {

// Memory that lives from one call to another.
class Block {
 public:
  explicit Block(int64_t bytes) : bytes_(bytes), data_(host_allocate(bytes)) {}
  ~Block() { host_free(data_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  int64_t bytes_;
  void* data_;
};

class BucketOperation final : public Operation {
 public:
  BucketOperation(Exchange exchange, const Bucket& bucket, const std::vector<Stage>& stages)
      : dtype_(bucket.dtype),
        memory_(bucket.memory),
        steps_(exchange_steps(exchange, bucket, stages)) {}

  void begin(Transport& transport, int tag) override {
    tag_ = tag;
    check(steps_.size() <= kTags, "communicator", "expected at most ", kTags, " steps, got ",
          steps_.size(), '.');
    begin_step(transport);
  }

  bool advance(Transport& transport) override {
    while (all_done(transport)) {
      if (!steps_[at_].gathers) add_up();
      if (++at_ == steps_.size()) return true;
      begin_step(transport);
    }
    return false;
  }

 private:
  void begin_step(Transport& transport) {
    const ExchangeStep& step = steps_[at_];
    const int tag = tag_ + static_cast<int>(at_);
    if (!step.gathers) scratch_ = std::make_unique<Block>(step.others() * step.bytes);
    // Starts with the next rank, so that the ranks do not all send to the same one.
    const int count = step.others() + 1;
    for (int k = 1; k < count; ++k) {
      const int from = (step.stage->place + count - k) % count;
      char* const to = step.gathers ? step.piece(from) : received(step, from);
      receive(transport, step.stage->ranks[static_cast<size_t>(from)], tag, to, step.bytes);
    }
    for (int k = 1; k < count; ++k) {
      const int to = (step.stage->place + k) % count;
      send(transport, step.stage->ranks[static_cast<size_t>(to)], tag,
           step.gathers ? step.own() : step.piece(to), step.bytes);
    }
  }

  // Receive buffer of another rank's piece.
  char* received(const ExchangeStep& step, int place) const {
    const int index = place - (place > step.stage->place ? 1 : 0);
    return scratch_->data() + index * step.bytes;
  }

  void add_up() {
    const ExchangeStep& step = steps_[at_];
    dispatch_wide(dtype_, [&](auto type) {
      using T = decltype(type);
      std::vector<const T*> pieces;
      for (int place = 0; place <= step.others(); ++place) {
        char* const piece = place == step.stage->place ? step.own() : received(step, place);
        pieces.push_back(reinterpret_cast<const T*>(piece));
      }
      // The thread that trains wants the cores.
      const OnThisThreadOnly here;
      kernels::tree_add<T>(Cpu{}, pieces, reinterpret_cast<T*>(step.own()),
                           step.bytes / size_of(dtype_));
    });
    scratch_.reset();
  }

  DType dtype_;
  Tensor memory_;
  std::vector<ExchangeStep> steps_;
  size_t at_ = 0;
  int tag_ = 0;
  std::unique_ptr<Block> scratch_;
};

// The first message of a text has its length and its beginning, so that short ones take one round.
struct Header {
  uint64_t bytes;
  uint32_t kind;  // ranks that are not at the same place are found out
  char text[244];
};
static_assert(sizeof(Header) == 256);

class StringOperation final : public Operation {
 public:
  StringOperation(std::string mine, bool from_0_only, std::vector<std::string>& result)
      : mine_(std::move(mine)), from_0_only_(from_0_only), result_(result) {}

  void begin(Transport& transport, int tag) override {
    tag_ = tag;
    const int rank = transport.rank(), senders = from_0_only_ ? 1 : transport.size();
    headers_.resize(static_cast<size_t>(senders));
    result_.assign(headers_.size(), {});
    for (int r = 0; r < senders; ++r) {
      if (r == rank) continue;
      receive(transport, r, tag, &headers_[static_cast<size_t>(r)], sizeof(Header));
    }
    if (rank >= senders) return;
    Header& own = headers_[static_cast<size_t>(rank)];
    own.bytes = mine_.size();
    own.kind = kind();
    std::memcpy(own.text, mine_.data(), std::min(mine_.size(), sizeof own.text));
    for (int k = 1; k < transport.size(); ++k) {
      const int to = (rank + k) % transport.size();
      send(transport, to, tag, &own, sizeof(Header));
      each_rest(mine_,
                [&](char* data, int64_t bytes) { send(transport, to, tag + 1, data, bytes); });
    }
  }

  bool advance(Transport& transport) override {
    const bool done = all_done(transport);
    if (!have_headers_) {
      // Does not wait for its own sends: a long text is sent only when the others have asked for
      // it.
      if (!awaited().empty()) return false;
      have_headers_ = true;
      for (int r = 0; r < static_cast<int>(headers_.size()); ++r) {
        if (r != transport.rank()) begin_rest(transport, r);
      }
      if (!all_done(transport)) return false;
    } else if (!done) {
      return false;
    }
    if (transport.rank() < static_cast<int>(result_.size())) {
      result_[static_cast<size_t>(transport.rank())] = std::move(mine_);
    }
    return true;
  }

 private:
  uint32_t kind() const { return from_0_only_ ? 0xb0adca57 : 0xa11; }

  // Calls f for the pieces of a text behind its first message.
  template <class F>
  static void each_rest(std::string& text, F f) {
    for (size_t at = sizeof(Header::text); at < text.size();) {
      const auto bytes =
          std::min(static_cast<int64_t>(text.size() - at), Transport::kLargestMessage);
      f(text.data() + at, bytes);
      at += static_cast<size_t>(bytes);
    }
  }

  void begin_rest(Transport& transport, int from) {
    const Header& header = headers_[static_cast<size_t>(from)];
    check(header.kind == kind(), "communicator", "rank ", from, " and rank ", transport.rank(),
          " are not at the same place of the program.");
    std::string& text = result_[static_cast<size_t>(from)];
    text.resize(header.bytes);
    std::memcpy(text.data(), header.text, std::min<size_t>(header.bytes, sizeof header.text));
    each_rest(text,
              [&](char* data, int64_t bytes) { receive(transport, from, tag_ + 1, data, bytes); });
  }

  std::string mine_;
  bool from_0_only_;
  std::vector<std::string>& result_;
  std::vector<Header> headers_;
  int tag_ = 0;
  bool have_headers_ = false;
};

}  // namespace

std::unique_ptr<Operation> bucket_operation(Exchange exchange, const Bucket& bucket,
                                            const std::vector<Stage>& stages) {
  return std::make_unique<BucketOperation>(exchange, bucket, stages);
}

std::unique_ptr<Operation> string_operation(std::string mine, bool from_0_only,
                                            std::vector<std::string>& result) {
  return std::make_unique<StringOperation>(std::move(mine), from_0_only, result);
}

}  // namespace tapestry
