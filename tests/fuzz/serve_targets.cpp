// What a server reads from its clients: the frame of a request, and its body.
#include <stdexcept>

#include "apps/commands/serve/door/request_frame.h"
#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/request_body.h"
#include "core/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace tapestry {
namespace {

using Seeds = std::vector<std::string>;

Seeds request_seeds() {
  const std::string chunks = "POST /score HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  return {
      "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
      "POST /translate HTTP/1.1\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n{\"q\":\"a\"}",
      chunks + "3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: b\r\n\r\nGET"};
}

// The end of a request depends on its bytes, not on how they arrive.
void read_request(std::string_view bytes) {
  constexpr int64_t kMostBody = 4096;
  RequestFrame whole(kMostBody);
  const RequestFrame::State state = whole.look(bytes);
  const bool expects = whole.expects_at() > 0;
  if (state == RequestFrame::State::kWhole && whole.size() > bytes.size()) {
    throw std::logic_error("a request is longer than its bytes");
  }
  if (expects && whole.expects_at() >= bytes.size()) throw std::logic_error("no such header");
  for (const size_t step : {size_t{1}, size_t{7}}) {
    RequestFrame grown(kMostBody);
    RequestFrame::State last = RequestFrame::State::kPartial;
    for (size_t size = 0; size < bytes.size() && last == RequestFrame::State::kPartial;) {
      size = std::min(bytes.size(), size + step);
      last = grown.look(bytes.substr(0, size));
    }
    const bool same = last == state && grown.status() == whole.status() &&
                      (last != RequestFrame::State::kWhole || grown.size() == whole.size());
    if (!same && !bytes.empty()) throw std::logic_error("a request depends on how it arrives");
  }
}

Seeds body_seeds() {
  return {R"({"q": ["a", "b"], "source": "de", "target": "en", "alternatives": 2, "seed": 1})",
          R"({"prompt": [[1, 2]], "logprobs": 5, "temperature": 0.5, "stop": "a", "stream": true})",
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})",
          R"({"text": "a <mask>", "top_k": 3, "context": "b", "question": null})",
          "q=a%20b+c&source=auto&target=en&alternatives=3&q=d"};
}

void use(const Call& call, const Field& field) {
  switch (field.type) {
    case FieldType::kText:
      call.text(field.name);
      break;
    case FieldType::kTextOrTexts:
      call.texts(field.name);
      break;
    case FieldType::kInteger:
      call.integer(field.name, 0);
      break;
    case FieldType::kNumber:
      call.number(field.name, 0);
      break;
    case FieldType::kBoolean:
      call.is_true(field.name);
      break;
    default:
      if (call.has(field.name)) json_text(Json(call.body.at(field.name)));
  }
}

// As JSON and as a form, for each endpoint. What is refused is refused by an HttpError.
void read_body_of_any(std::string_view bytes) {
  for (const char* type : {"application/json", "application/x-www-form-urlencoded"}) {
    Call call;
    try {
      call.body = read_body(type, std::string(bytes));
    } catch (const HttpError&) {
      continue;
    }
    json_text(call.body);
    for (const Endpoint* endpoint : endpoints()) {
      try {
        check_fields(*endpoint, call.body);
        for (const Field& field : endpoint->fields) use(call, field);
        call.seed();
      } catch (const HttpError&) {
      }
    }
  }
}

constexpr FuzzTarget kTargets[] = {{"http_request", request_seeds, read_request},
                                   {"request_body", body_seeds, read_body_of_any}};

}  // namespace

std::span<const FuzzTarget> serve_targets() { return kTargets; }

}  // namespace tapestry
