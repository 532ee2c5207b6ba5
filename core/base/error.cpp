#include "core/base/error.h"

#include <sstream>

namespace tapestry {

std::string join(std::initializer_list<MessagePart> parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) out << part;
  return out.str();
}

void fail_with(ErrorKind kind, std::initializer_list<MessagePart> parts) {
  throw Error(kind, join(parts));
}

}  // namespace tapestry
