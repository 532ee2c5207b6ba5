// The body of a request as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "apps/commands/serve/call.h"

namespace httplib {
class ContentReader;
struct Request;
}  // namespace httplib

namespace tapestry {

/// The bytes of a body, unpacked. Throws HttpError(413) beyond `most` of them, after the rest is
/// read: the connection goes on with the next request.
std::string read_bytes(const httplib::Request& request, const httplib::ContentReader& content,
                       int64_t most, const CallEnd& end);

/// An object of JSON, or the fields of a form. Throws HttpError(400) for neither.
Json read_body(const httplib::Request& request, const std::string& body);

/// The fields of application/x-www-form-urlencoded; one that is given twice is a list.
Json form_fields(const std::string& body);

}  // namespace tapestry
