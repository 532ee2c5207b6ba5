#include "apps/commands/serve/request_body.h"

#include <httplib.h>

#include "apps/commands/serve/http_error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
               hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(16 * hex_digit(text[i + 1]) + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  if (find_invalid_utf8(out) != std::string::npos) refuse(400, "the form is not UTF-8.");
  return out;
}

}  // namespace

Json form_fields(const std::string& body) {
  Json fields = Json::object();
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('&', begin), body.size());
    const std::string_view pair = std::string_view(body).substr(begin, end - begin);
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string name = decoded(pair.substr(0, equals));
    const std::string value =
        equals < pair.size() ? decoded(pair.substr(equals + 1)) : std::string();
    Json& field = fields[name];
    if (field.is_null()) {
      field = value;
    } else {
      if (!field.is_array()) field = Json::array({field});
      field.push_back(value);
    }
    begin = end + 1;
  }
  // Forms have no numbers.
  for (const char* number : {"alternatives", "seed"}) {
    const auto found = fields.find(number);
    if (found == fields.end() || !found->is_string()) continue;
    const Json value = Json::parse(found->get<std::string>(), nullptr, /*allow_exceptions=*/false);
    if (value.is_number_integer()) *found = value;
  }
  return fields;
}

std::string read_bytes(const httplib::Request& request, const httplib::ContentReader& content,
                       int64_t most, const CallEnd& end) {
  if (request.is_multipart_form_data()) {
    refuse(400, "the body must be JSON or a form, got multipart/form-data.");
  }
  std::string body;
  // The library refuses a length beyond the limit itself; chunks tell none.
  bool too_large =
      std::strtoll(request.get_header_value("Content-Length").c_str(), nullptr, 10) > most;
  const bool read = content([&](const char* data, size_t size) {
    too_large = too_large || static_cast<int64_t>(body.size() + size) > most;
    if (!too_large) body.append(data, size);
    return std::chrono::steady_clock::now() < end.deadline;
  });
  if (too_large) refuse(413, "the body is larger than ", most, " bytes (--max-body).");
  if (!read) refuse(400, "the body could not be read.");
  return body;
}

Json read_body(const httplib::Request& request, const std::string& body) {
  // curl -d sends JSON under the type of a form, too.
  const std::string type = request.get_header_value("Content-Type");
  if (type.starts_with("application/x-www-form-urlencoded") && !body.starts_with('{')) {
    return form_fields(body);
  }
  try {
    Json json = Json::parse(body);
    if (!json.is_object()) refuse(400, "the body must be a JSON object, got ", json.type_name());
    return json;
  } catch (const Json::exception& error) {
    refuse(400, "the body must be a JSON object: ", error.what());
  }
}

}  // namespace tapestry
