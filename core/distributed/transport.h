// Messages from rank to rank: the interface between operations and heartbeats, which know no MPI,
// and an implementation, which knows only messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tapestry {

/// One thread makes all calls except end_job().
class Transport {
 public:
  /// A message under way. Its memory belongs to the transport until it is done.
  class Request {
   public:
    virtual ~Request() = default;
  };
  using RequestPtr = std::unique_ptr<Request>;

  /// Tags are 0 to this.
  static constexpr int kLargestTag = 32767;
  /// Most bytes of a message; longer ones are sent in pieces.
  static constexpr int64_t kLargestMessage = int64_t{1} << 30;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;
  /// "open mpi 4.1.4"
  virtual std::string library() const = 0;

  /// Neither blocks. Messages from one rank to another with one tag arrive in the order of their
  /// sends. The receiver names the exact number of bytes.
  virtual RequestPtr send(int to, int tag, const void* data, int64_t bytes) = 0;
  virtual RequestPtr receive(int from, int tag, void* data, int64_t bytes) = 0;

  /// True if the message has been sent or received; makes progress. Do not ask again after true.
  /// Throws Error if another message than the expected one came, or if the job is ending.
  virtual bool done(Request& request) = 0;

  /// The last call of a rank that ends well, after its last message.
  virtual void finish() = 0;
  /// Ends every process of the job with this code, this one included if ranks are processes. Any
  /// thread may call it.
  virtual void end_job(int code) noexcept = 0;
};

}  // namespace tapestry
