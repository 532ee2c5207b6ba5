// Where a request ends in the bytes of a connection (RFC 9112). What is in it, the library reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tapestry {

class RequestFrame {
 public:
  enum class State { kPartial, kWhole, kRefused };

  /// The request may have so many bytes of body, however it is packed.
  explicit RequestFrame(int64_t most_body) : most_body_(most_body) {}

  /// Call it with the bytes from the beginning of the request, each time with more of them, until
  /// it is whole or refused.
  State look(std::string_view bytes);

  /// Bytes of a whole request; those behind belong to the next one.
  size_t size() const { return end_; }
  /// Where the header "Expect: 100-continue" begins, or 0: the client waits for leave to send its
  /// body.
  size_t expects_at() const { return expects_at_; }
  /// Of a refused one.
  int status() const { return status_; }
  const std::string& problem() const { return problem_; }

 private:
  enum class Part { kHeader, kBody, kChunkSize, kChunk, kTrailer };

  State refuse(int status, std::string problem);
  bool read_header(std::string_view header);
  bool read_field(std::string_view name, std::string_view value);
  State read_chunks(std::string_view bytes);

  int64_t most_body_;
  Part part_ = Part::kHeader;
  size_t at_ = 0;   // the bytes before it are read
  size_t end_ = 0;  // of the request, if it is known
  int64_t body_ = 0;
  int64_t length_ = -1;  // Content-Length
  bool chunked_ = false;
  size_t expects_at_ = 0;
  int status_ = 0;
  std::string problem_;
};

}  // namespace tapestry
