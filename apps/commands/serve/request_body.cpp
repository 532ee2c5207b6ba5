#include "apps/commands/serve/request_body.h"

#include <httplib.h>

#include <set>

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
  return fields;
}

std::string read_bytes(const httplib::ContentReader& content, int64_t most, const CallEnd& end) {
  std::string body;
  bool too_large = false;  // what is packed may be larger than it came
  const bool read = content([&](const char* data, size_t size) {
    too_large = static_cast<int64_t>(body.size() + size) > most;
    if (!too_large) body.append(data, size);
    return !too_large && std::chrono::steady_clock::now() < end.deadline;
  });
  if (too_large) refuse(413, "the body is larger than ", most, " bytes (--max-body).");
  if (!read) refuse(400, "the body could not be read.");
  return body;
}

Json read_parts(const httplib::ContentReader& content, int64_t most, const CallEnd& end) {
  constexpr size_t kMostParts = 64;
  std::vector<std::pair<std::string, std::string>> parts;
  int64_t size = 0;
  const bool read = content(
      [&](const httplib::MultipartFormData& part) {
        parts.emplace_back(part.name, "");
        return parts.size() <= kMostParts;
      },
      [&](const char* data, size_t count) {
        size += static_cast<int64_t>(count);
        if (size > most || parts.empty()) return false;
        parts.back().second.append(data, count);
        return std::chrono::steady_clock::now() < end.deadline;
      });
  if (size > most) refuse(413, "the body is larger than ", most, " bytes (--max-body).");
  if (!read) refuse(400, "the body is not multipart/form-data as expected.");
  Json fields = Json::object();
  for (auto& [name, value] : parts) {
    if (find_invalid_utf8(name) != std::string::npos) refuse(400, "the form is not UTF-8.");
    if (find_invalid_utf8(value) != std::string::npos) {
      refuse(400, "the part '", name, "' of the form is not UTF-8.");
    }
    if (fields.contains(name)) refuse(400, "the form has the part '", name, "' twice.");
    fields[name] = std::move(value);
  }
  return fields;
}

Json parse_json(const std::string& text) {
  // Of copies and texts of deeper ones the stack would be full.
  static constexpr int kMostDepth = 64;
  std::vector<std::set<std::string>> names;  // of the objects around what is read
  const auto check = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth > kMostDepth) refuse(400, "the body is nested deeper than ", kMostDepth, '.');
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key &&
        !names.back().insert(value.get<std::string>()).second) {
      refuse(400, "an object of the body has '", value.get<std::string>(), "' twice.");
    }
    return true;
  };
  return Json::parse(text, check);
}

Json read_body(const std::string& type, const std::string& body) {
  // curl -d sends JSON under the type of a form, too.
  if (type.starts_with("application/x-www-form-urlencoded") && !body.starts_with('{')) {
    return form_fields(body);
  }
  try {
    Json json = parse_json(body);
    if (!json.is_object()) refuse(400, "the body must be a JSON object, got ", json.type_name());
    return json;
  } catch (const Json::exception& error) {
    refuse(400, "the body must be a JSON object: ", error.what());
  }
}

}  // namespace tapestry
