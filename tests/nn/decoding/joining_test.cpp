// Sentences that join a search while it runs, in places of others that are done.
#include <deque>

#include "nn/decoding/decoding.h"
#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table

struct Joiner {
  Tokens prompt;
  int64_t limit;
  uint64_t seed;
};
const std::vector<Joiner> kJoiners = {
    {{kBos, 4, 5}, 6, 1}, {{kBos}, 9, 2}, {{5, 4}, 3, 1}, {{kBos, 6}, 7, 3}, {{4}, 5, 2}};

// A search with three places, into which joiners come as next(free) says; with `seeds` each has
// a seed of its own.
std::vector<std::vector<Hypothesis>> join_search(
    const Table& table, bool seeds, const SearchOptions& options,
    const std::function<std::vector<std::pair<int64_t, size_t>>(std::vector<int64_t>& free)>&
        next) {
  constexpr int64_t places = 3;
  SearchTask task = task_of(std::vector<int64_t>(static_cast<size_t>(places), 1));
  task.prompts.assign(static_cast<size_t>(places), {kBos});
  if (seeds) task.seeds.assign(static_cast<size_t>(places), 1);
  task.sequence_ids.assign(static_cast<size_t>(places), 0);
  task.sentences_at_once = places;
  std::vector<int64_t> free;
  for (int64_t place = places; place-- > 0;) free.push_back(place);
  std::vector<size_t> at(static_cast<size_t>(places));
  std::vector<std::vector<Hypothesis>> found(kJoiners.size());
  const SearchQueue queue{.next =
                              [&](int64_t) {
                                std::vector<int64_t> joined;
                                for (const auto& [place, joiner] : next(free)) {
                                  const auto p = static_cast<size_t>(place);
                                  task.prompts[p] = kJoiners[joiner].prompt;
                                  task.max_lengths[p] = kJoiners[joiner].limit;
                                  if (seeds) task.seeds[p] = kJoiners[joiner].seed;
                                  at[p] = joiner;
                                  joined.push_back(place);
                                }
                                return joined;
                              },
                          .done =
                              [&](int64_t place, std::vector<Hypothesis> hypotheses) {
                                found[at[static_cast<size_t>(place)]] = std::move(hypotheses);
                                free.push_back(place);
                              }};
  TableModel model(table);
  if (options.num_beams > 1) {
    beam_search(model, task, options, queue);
  } else {
    generate(model, task, options, {}, queue);
  }
  return found;
}

TEST(Joining, AnswersAreThoseOfASearchOfOneSentence) {
  for (const SearchOptions& options :
       {SearchOptions{.num_beams = 1}, SearchOptions{.num_beams = 3, .n_best = 2},
        SearchOptions{.num_beams = 1, .do_sample = true, .temperature = 1.5, .seed = 99}}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      const Table table(seed, 1);
      // One joins at each step, while others run or when nobody does.
      std::vector<int64_t> place_of(kJoiners.size());
      size_t joined = 0;
      const auto together = join_search(table, true, options, [&](std::vector<int64_t>& free) {
        std::vector<std::pair<int64_t, size_t>> now;
        if (joined == kJoiners.size()) return now;
        place_of[joined] = free.back();
        now.emplace_back(free.back(), joined++);
        free.pop_back();
        return now;
      });
      ASSERT_EQ(joined, kJoiners.size());
      for (size_t i = 0; i < kJoiners.size(); ++i) {
        bool asked = false;
        SearchOptions of_one = options;
        of_one.seed = kJoiners[i].seed;
        const auto alone = join_search(table, false, of_one, [&](std::vector<int64_t>&) {
          std::vector<std::pair<int64_t, size_t>> now;
          if (!asked) now.emplace_back(place_of[i], i);
          asked = true;
          return now;
        });
        SCOPED_TRACE(concat("seed ", seed, ", sentence ", i));
        expect_same(together[i], alone[i], 0);
      }
    }
  }
}

}  // namespace
}  // namespace tapestry
