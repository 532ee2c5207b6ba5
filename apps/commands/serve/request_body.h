// The body of a request as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "apps/commands/serve/call.h"

namespace httplib {
class ContentReader;
}  // namespace httplib

namespace tapestry {

/// The bytes of a body, unpacked. Throws HttpError(413) beyond `most` of them.
std::string read_bytes(const httplib::ContentReader& content, int64_t most, const CallEnd& end);

/// The fields of multipart/form-data, files among them. Throws as read_bytes(), and HttpError(400)
/// for what is no such body, and for bytes that are not UTF-8.
Json read_parts(const httplib::ContentReader& content, int64_t most, const CallEnd& end);

/// JSON that a client sent. Throws HttpError(400) for one that is nested too deeply or has a name
/// twice in an object, of which one value would be lost, and Json::exception for other texts.
Json parse_json(const std::string& text);

/// An object of JSON, or the fields of a form. `type` is the header Content-Type. Throws
/// HttpError(400) for neither.
Json read_body(const std::string& type, const std::string& body);

/// The fields of application/x-www-form-urlencoded; one that is given twice is a list.
Json form_fields(const std::string& body);

}  // namespace tapestry
