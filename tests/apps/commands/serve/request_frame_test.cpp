#include "apps/commands/serve/door/request_frame.h"

#include <gtest/gtest.h>

namespace tapestry {
namespace {

using FrameState = RequestFrame::State;

// What the frame says of these bytes, once given as a whole and once byte by byte.
std::string framed(const std::string& bytes, int64_t most_body = 10) {
  RequestFrame whole(most_body), grown(most_body);
  const FrameState state = whole.look(bytes);
  FrameState last = FrameState::kPartial;
  size_t size = 0;
  while (last == FrameState::kPartial && size <= bytes.size()) {
    last = grown.look(std::string_view(bytes).substr(0, size++));
  }
  EXPECT_EQ(last, state) << bytes;
  EXPECT_EQ(grown.status(), whole.status()) << bytes;
  if (state == FrameState::kPartial) return "partial";
  if (state == FrameState::kRefused) return std::to_string(whole.status());
  EXPECT_EQ(grown.size(), whole.size()) << bytes;
  EXPECT_EQ(size - 1, whole.size()) << bytes;  // not a byte later than it must be
  return "whole";
}

TEST(RequestFrameTest, EndsWhereTheBodyDoes) {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(framed(get), "whole");
  EXPECT_EQ(framed(get + get), "whole");
  EXPECT_EQ(framed("GET / HTTP/1.1\r\nHost: a\r\n"), "partial");
  const std::string post = "POST / HTTP/1.1\r\ncontent-LENGTH:  5 \r\n\r\n";
  EXPECT_EQ(framed(post + "1234"), "partial");
  EXPECT_EQ(framed(post + "12345"), "whole");
  EXPECT_EQ(framed(post + "12345GET"), "whole");
  const std::string chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(framed(chunks + "3;name=a\r\nabc\r\nA"), "partial");
  EXPECT_EQ(framed(chunks + "3\r\nabc\r\n0\r\n\r\n"), "whole");
  EXPECT_EQ(framed(chunks + "3\r\nabc\r\n0\r\nTrailer: b\r\n\r\nGET"), "whole");
}

TEST(RequestFrameTest, RefusesWhatHasNoClearEnd) {
  const auto post = [](const std::string& headers) {
    return "POST / HTTP/1.1\r\n" + headers + "\r\n\r\n";
  };
  for (const char* length : {"-1", "+1", "1 2", "a", "", "99999999999999999999"}) {
    EXPECT_EQ(framed(post(std::string("Content-Length: ") + length)), "400") << length;
  }
  EXPECT_EQ(framed(post("Content-Length: 3\r\nContent-Length: 4")), "400");
  EXPECT_EQ(framed(post("Content-Length: 3\r\nContent-Length: 3") + "abc"), "whole");
  EXPECT_EQ(framed(post("Content-Length: 3\r\nTransfer-Encoding: chunked")), "400");
  EXPECT_EQ(framed(post("Transfer-Encoding: gzip, chunked")), "501");
  EXPECT_EQ(framed(post("Content-Length: 11")), "413");
  const std::string chunks = post("Transfer-Encoding: chunked");
  EXPECT_EQ(framed(chunks + "6\r\nabcdef\r\n6\r\n"), "413");
  EXPECT_EQ(framed(chunks + "7fffffffffffffff\r\n"), "413");
  EXPECT_EQ(framed(chunks + "-1\r\n"), "400");
  EXPECT_EQ(framed(chunks + "2\r\nabc\r\n"), "400");
  EXPECT_EQ(framed(chunks + std::string(300, '1')), "400");
  EXPECT_EQ(framed(post(std::string(70000, 'a'))), "431");
  std::string tiny = chunks;
  for (int i = 0; i < 300000; ++i) tiny += "1\r\na\r\n";
  RequestFrame frame(1 << 16);
  EXPECT_EQ(frame.look(tiny), FrameState::kRefused);
  EXPECT_EQ(frame.status(), 413);
}

}  // namespace
}  // namespace tapestry
