#include <gtest/gtest.h>

#include <thread>

#include "apps/commands/serve/call.h"
#include "apps/commands/serve/http_error.h"

namespace tapestry {
namespace {

CallEnd end_in(std::chrono::milliseconds time) {
  return {.deadline = std::chrono::steady_clock::now() + time};
}

TEST(TurnsTest, AWaitForATurnEndsWithTheRequestsTime) {
  Turns turns;
  {
    const Turns::Turn first(turns, CallEnd());
    const CallEnd end = end_in(std::chrono::milliseconds(30));
    try {
      const Turns::Turn second(turns, end);
      FAIL() << "two have it";
    } catch (const HttpError& error) {
      EXPECT_EQ(error.status(), 503);
    }
    EXPECT_TRUE(end.cancelled->load());
    const CallEnd cut = end_in(std::chrono::minutes(1));
    cut.cancelled->store(true);  // its client is gone
    EXPECT_THROW(Turns::Turn(turns, cut), HttpError);
  }
  const Turns::Turn again(turns, end_in(std::chrono::milliseconds(30)));
}

TEST(TurnsTest, OneAtATime) {
  Turns turns;
  std::atomic<int> inside{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Turns::Turn turn(turns, CallEnd());
        most = std::max(most.load(), ++inside);
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most.load(), 1);
}

}  // namespace
}  // namespace tapestry
