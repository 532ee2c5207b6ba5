// Messages from rank to rank. What is above it (operations, heartbeats) knows no MPI; what
// implements it knows nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tapestry {

/// One thread calls all of it, but for end_job().
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
  /// Bytes of a message; what is longer goes in pieces.
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

  /// Whether the message has gone or come; makes progress. Not to be asked again once true. Throws
  /// Error when the message was another than was expected, or the job is ending.
  virtual bool done(Request& request) = 0;

  /// The last call of a rank that ends well, after its last message.
  virtual void finish() = 0;
  /// Every process of the job ends with this code, this one too where ranks are processes. Any
  /// thread may call it.
  virtual void end_job(int code) noexcept = 0;
};

}  // namespace tapestry
