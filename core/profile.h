// Measures where the time of a step goes, for benchmarks. Without a Profile a scope costs one
// comparison.
#pragma once

#include <array>
#include <chrono>

namespace tapestry {

enum class Part { kProducts, kAttention, kNorms, kClassifier, kOptimizer, kData };
inline constexpr int kParts = 6;
/// "products" (dense layers and matrix products), "attention", "norms", "classifier" (with its
/// loss), "optimizer" (with the gradient's norm), "data" (waiting for batches).
const char* name_of(Part part);

using PartSeconds = std::array<double, kParts>;

namespace internal {
/// The seconds of this thread's Profile; null without one.
inline thread_local PartSeconds* profile = nullptr;
inline thread_local bool profile_scope_is_open = false;
}  // namespace internal

/// Adds the time of its scope to `part`. Only the outermost of nested scopes counts.
class ProfileScope {
 public:
  explicit ProfileScope(Part part) : part_(part) {
    if (internal::profile == nullptr || internal::profile_scope_is_open) return;
    internal::profile_scope_is_open = counts_ = true;
    start_ = std::chrono::steady_clock::now();
  }
  ~ProfileScope() {
    if (!counts_) return;
    internal::profile_scope_is_open = false;
    (*internal::profile)[static_cast<size_t>(part_)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Part part_;
  bool counts_ = false;
  std::chrono::steady_clock::time_point start_;
};

/// While it lives, kernels called on this thread add their times to `seconds`.
class Profile {
 public:
  explicit Profile(PartSeconds& seconds) { internal::profile = &seconds; }
  ~Profile() { internal::profile = nullptr; }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
};

}  // namespace tapestry
