#pragma once

#include <stdexcept>
#include <string>

#include "core/base/error.h"

namespace tapestry {

/// A request that gets an error with this status.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

template <class... Parts>
[[noreturn]] void refuse(int status, const Parts&... parts) {
  throw HttpError(status, concat(parts...));
}

}  // namespace tapestry
