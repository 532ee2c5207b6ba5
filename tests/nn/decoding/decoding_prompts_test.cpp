// Prompts and forced prefixes of different lengths in one batch, sources, independence of the batch
// and of threads, hooks, and errors.
#include "nn/decoding/decoding.h"

#include <algorithm>
#include <set>

#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table and the plain searches

// Lengths 3, 1, 6, 2 and 3.
const std::vector<Tokens> kPrompts = {
    {kBos, 4, 5}, {kBos}, {kBos, 6, 6, 4, 5, 6}, {5, 4}, {kBos, kEos, 4}};
const std::vector<int64_t> kLimits = {6, 4, 3, 8, 1};

struct PromptStrategy {
  const char* name;
  SearchOptions options;
};

void PrintTo(const PromptStrategy& strategy, std::ostream* out) { *out << strategy.name; }

const PromptStrategy kPromptStrategies[] = {
    {"greedy", {.num_beams = 1}},
    {"greedy_with_rules",
     {.num_beams = 1,
      .presence_penalty = 0.5,
      .repetition_penalty = 1.5,
      .no_repeat_ngram_size = 2,
      .min_new_tokens = 2}},
    {"beams", {.num_beams = 3, .n_best = 3}},
    {"beams_with_rules",
     {.num_beams = 4,
      .n_best = 2,
      .frequency_penalty = 0.5,
      .repetition_penalty = 1.5,
      .no_repeat_ngram_size = 2,
      .min_new_tokens = 2}},
    {"sampling", {.num_beams = 1, .do_sample = true, .temperature = 1.2, .seed = 8}},
    {"sampling_with_rules",
     {.num_beams = 1,
      .do_sample = true,
      .top_k = 3,
      .top_p = 0.9,
      .frequency_penalty = 0.5,
      .repetition_penalty = 1.5,
      .no_repeat_ngram_size = 2,
      .min_new_tokens = 2,
      .seed = 9}},
};

class Prompts : public ::testing::TestWithParam<PromptStrategy> {
 protected:
  static SearchTask task() {
    SearchTask task = task_of(kLimits);
    task.prompts = kPrompts;
    task.force_eos = false;
    return task;
  }
  // The plain search of only sentence s of the table.
  static std::vector<Hypothesis> alone(const Table& table, int32_t s) {
    const SearchOptions& options = GetParam().options;
    const Question question{table, s, kLimits[s], kPrompts[s], false};
    if (options.num_beams > 1) return plain_beam_search(question, options);
    return {plain_generate(question, options, s)};
  }
  // Each token's log-probability after those before it.
  static void expect_token_scores(const Question& question, const Hypothesis& hypothesis) {
    Tokens tokens = hypothesis.tokens;
    if (hypothesis.has_eos) tokens.push_back(kEos);
    ASSERT_EQ(hypothesis.token_log_probabilities.size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Tokens before(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_NEAR(hypothesis.token_log_probabilities[i],
                  choices(question, before, GetParam().options).log_probabilities[tokens[i]],
                  1e-12);
    }
  }
};

TEST_P(Prompts, OfDifferentLengthsAreContinuedAsIfAlone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Table table(seed, seed % 2 == 0 ? 3 : 1);
    TableModel model(table);
    const auto found = search(model, task(), GetParam().options);
    for (int32_t s = 0; s < 5; ++s) {
      SCOPED_TRACE(concat("seed ", seed, ", sentence ", s));
      expect_same(found[s], alone(table, s));
    }
  }
}

// The second prefix breaks the rules: it has a banned token and repeats itself.
const std::vector<Tokens> kPrefixes = {{}, {4, kUnk}, {6, 6, 6, 6}, {5}, {}};
const std::vector<Tokens> kSources = {{4}, {}, {5, 5, 4}, {6, kEos, 900}, {5, 6}};

TEST_P(Prompts, AndPrefixesAndSourcesAreThoseOfEachSentence) {
  const std::vector<int64_t> limits = {6, 4, 7, 8, 1};
  for (const bool with_prompts : {false, true}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Table table(seed, seed % 2 == 0 ? 3 : 1);
      TableModel model(table);
      SearchTask task = task_of(limits);
      if (with_prompts) task.prompts = kPrompts;
      task.prefixes = kPrefixes;
      task.sources = kSources;
      task.token_log_probabilities = true;
      const auto found = search(model, task, GetParam().options);
      for (int32_t s = 0; s < 5; ++s) {
        SCOPED_TRACE(concat("seed ", seed, ", sentence ", s));
        const Question question{table,
                                s,
                                limits[s],
                                with_prompts ? kPrompts[s] : Tokens{kBos},
                                /*force_eos=*/true,
                                kPrefixes[s],
                                kSources[s]};
        expect_same(found[s], GetParam().options.num_beams > 1
                                  ? plain_beam_search(question, GetParam().options)
                                  : std::vector{plain_generate(question, GetParam().options, s)});
        for (const Hypothesis& hypothesis : found[s]) expect_token_scores(question, hypothesis);
      }
    }
  }
}

TEST_P(Prompts, TokenLogProbabilitiesAreThereOnRequestOnly) {
  const Table table(3);
  TableModel model(table);
  for (const auto& hypotheses : search(model, task(), GetParam().options)) {
    for (const Hypothesis& h : hypotheses) EXPECT_TRUE(h.token_log_probabilities.empty());
  }
}

TEST_P(Prompts, AreReadBeforeTheFirstStep) {
  const Table table(3);
  TableModel model(table);
  SearchTask task = task_of({1, 1});
  task.prompts = {{kBos, 4, 5, 6, 4, 4}, {kBos, 6, 5, 4, 4, 5}};
  search(model, task, GetParam().options);
  EXPECT_EQ(model.steps, 1);
}

// Only the sequence ids matter: batches of any order and size give the same.
TEST_P(Prompts, TheOrderAndTheSizeOfBatchesDoNotMatter) {
  const Table table(5, 1.5);
  const auto run = [&](const std::vector<size_t>& order) {
    SearchTask batch;
    batch.sentences = std::ssize(order);
    batch.banned = {kPad, kUnk, kBos};
    batch.force_eos = false;
    for (const size_t i : order) {
      batch.prompts.push_back(kPrompts[i]);
      batch.max_lengths.push_back(kLimits[i]);
      batch.sequence_ids.push_back(100 + static_cast<int64_t>(i));
    }
    TableModel model(table, /*alike=*/true);
    return search(model, batch, GetParam().options);
  };
  const auto together = run({0, 1, 2, 3, 4});
  const std::vector<size_t> order = {3, 0, 4, 2, 1};
  const auto shuffled = run(order);
  for (size_t i = 0; i < order.size(); ++i) expect_same(shuffled[i], together[order[i]], 0);
  for (size_t i = 0; i < 5; ++i) expect_same(run({i}).at(0), together[i], 0);
}

TEST_P(Prompts, ThreadsDoNotMatter) {
  const Table table(6);
  const int threads = num_threads();
  std::vector<std::vector<std::vector<Hypothesis>>> results;
  for (const int count : {1, 2, 5}) {
    set_num_threads(count);
    TableModel model(table);
    results.push_back(search(model, task(), GetParam().options));
  }
  set_num_threads(threads);
  for (size_t s = 0; s < 5; ++s) {
    expect_same(results[1][s], results[0][s], 0);
    expect_same(results[2][s], results[0][s], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Prompts, ::testing::ValuesIn(kPromptStrategies),
                         [](const auto& info) { return std::string(info.param.name); });

// The first draw is that of a sentence with one, and each of the others is that of a sequence of
// its own.
TEST(Draws, AreSeveralOfEachSentence) {
  const Table table(8);
  const SearchOptions one{.num_beams = 1, .do_sample = true, .seed = 3};
  SearchOptions three = one;
  three.n_best = 3;
  SearchTask task = task_of({5, 9, 7});
  task.sequence_ids = {4, 1, 6};
  task.prefixes = {{}, {4, 5}, {}};
  TableModel alone(table);
  const auto single = generate(alone, task, one);
  std::vector<std::vector<Hypothesis>> found(3);
  search_together([&] { return std::make_unique<TableModel>(table); }, task, three, {},
                  [&](int64_t sentence, std::vector<Hypothesis> hypotheses) {
                    found.at(static_cast<size_t>(sentence)) = std::move(hypotheses);
                  });
  for (size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(found[s].size(), 3u);
    std::set<Tokens> texts;
    int64_t equal = 0;
    for (size_t n = 0; n < 3; ++n) {
      texts.insert(found[s][n].tokens);
      equal += found[s][n].tokens == single[s].tokens;
      if (n > 0) {
        EXPECT_GE(found[s][n - 1].score, found[s][n].score);
      }
      if (s == 1) {
        EXPECT_EQ(Tokens(found[s][n].tokens.begin(), found[s][n].tokens.begin() + 2),
                  (Tokens{4, 5}));
      }
    }
    EXPECT_GE(equal, 1);
    EXPECT_GT(texts.size(), 1u) << "sentence " << s;
  }
}

// eos at the limit is the model's own where it would have come there anyway.
TEST(Cut, IsWhatTheLimitEndsAlone) {
  const Table table(9);
  for (const SearchOptions& options :
       {SearchOptions{.num_beams = 1}, SearchOptions{.num_beams = 1, .repetition_penalty = 1.5},
        SearchOptions{.num_beams = 1, .do_sample = true}}) {
    TableModel free(table, /*alike=*/true);
    const Hypothesis whole = generate(free, task_of({40}), options).at(0);
    ASSERT_TRUE(whole.has_eos);
    ASSERT_FALSE(whole.cut);
    const auto length = std::ssize(whole.tokens) + 1;
    ASSERT_GT(length, 1);
    for (const int64_t limit : {length - 1, length, length + 1}) {
      TableModel model(table, /*alike=*/true);
      const Hypothesis found = generate(model, task_of({limit}), options).at(0);
      EXPECT_TRUE(found.has_eos);
      EXPECT_EQ(found.cut, limit < length) << limit;
    }
  }
  // In a beam search the best hypothesis tells it.
  const SearchOptions beams{.num_beams = 3};
  TableModel free(table, /*alike=*/true), model(table, /*alike=*/true);
  EXPECT_FALSE(beam_search(free, task_of({40}), beams).at(0).at(0).cut);
  const Hypothesis first = beam_search(model, task_of({1}), beams).at(0).at(0);
  EXPECT_TRUE(first.tokens.empty());
  const auto z = table.logits(0, {kBos});
  EXPECT_EQ(first.cut, std::max_element(z.begin() + kEos, z.end()) - z.begin() != kEos);
}

TEST(Seeds, GiveOtherTexts) {
  const Table table(2, 0.5);
  const auto text = [&](uint64_t seed) {
    TableModel model(table);
    SearchTask task = task_of({40});
    task.banned.push_back(kEos);
    return generate(model, task, {.do_sample = true, .seed = seed}).at(0).tokens;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST(Hooks, SeeEachTokenOfEachSentence) {
  const Table table(7);
  SearchTask task = task_of({6, 4, 3, 8, 1});
  task.prompts = kPrompts;
  TableModel plain(table), watched(table);
  const auto expected = generate(plain, task, {});
  std::vector<Tokens> streamed(5);
  const auto found =
      generate(watched, task, {}, {.on_token = [&](int64_t sentence, const Tokens& generated) {
                 streamed[sentence].push_back(generated.back());
                 EXPECT_EQ(streamed[sentence], generated);
                 return false;
               }});
  expect_same(found, expected, 0);
  for (size_t s = 0; s < 5; ++s) EXPECT_EQ(streamed[s], expected[s].tokens);
}

TEST(Hooks, StopTheirSentenceAlone) {
  const Table table(7, 1);
  SearchTask task = task_of({20, 20, 20});
  task.banned.push_back(kEos);
  TableModel plain(table), stopped(table);
  const auto full = generate(plain, task, {.do_sample = true});
  const auto found = generate(stopped, task, {.do_sample = true},
                              {.on_token = [](int64_t sentence, const Tokens& generated) {
                                return sentence == 1 && generated.size() == 3;
                              }});
  expect_same({found[0]}, {full[0]}, 0);
  expect_same({found[2]}, {full[2]}, 0);
  EXPECT_EQ(found[1].tokens, Tokens(full[1].tokens.begin(), full[1].tokens.begin() + 3));
  EXPECT_FALSE(found[1].has_eos);
  EXPECT_DOUBLE_EQ(found[1].score, found[1].log_probability / 3);
  EXPECT_EQ(stopped.rows(), 0);
}

TEST(GenerationLimit, IsMaxNewTokensOrWhatThePositionsHaveRoomFor) {
  EXPECT_EQ(generation_limit(1, 16, 16, {}), 16);  // the last token is not fed
  EXPECT_EQ(generation_limit(16, 16, 16, {}), 1);
  EXPECT_EQ(generation_limit(4, 16, 16, {.max_new_tokens = 5}), 5);
  EXPECT_EQ(generation_limit(14, 16, 16, {.max_new_tokens = 5}), 5);
  EXPECT_EQ(error_of([] { generation_limit(17, 16, 16, {.max_new_tokens = 5}); }),
            "[search] the prompt has 17 tokens, the model has positions for 16.");
  // Positions that go on.
  EXPECT_EQ(generation_limit(4, 16, 1000, {}), 13);
  EXPECT_EQ(generation_limit(17, 16, 1000, {.max_new_tokens = 50}), 50);
  EXPECT_EQ(error_of([] { generation_limit(17, 16, 1000, {}); }),
            "[search] the prompt has 17 tokens, more than the 16 of the training: max_new_tokens "
            "must say how many may follow.");
}

TEST(SearchOptionsValidate, NamesTheValueThatIsWrong) {
  const auto error = [](const SearchOptions& options) {
    return error_of([&] { options.validate(); });
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.num_beams = 1, .do_sample = true, .temperature = 1e-3, .top_p = 1e-9}), "");
  EXPECT_EQ(error({.num_beams = 0}), "[search] num_beams must be in [1, 1024], got 0.");
  EXPECT_EQ(error({.num_beams = 2, .n_best = 3}),
            "[search] n_best must be in [1, num_beams], got 3 and num_beams 2.");
  EXPECT_EQ(error({.num_beams = 1, .n_best = 3, .do_sample = true}), "");
  EXPECT_EQ(error({.num_beams = 1, .n_best = 1025, .do_sample = true}),
            "[search] n_best must be in [1, 1024], got 1025.");
  EXPECT_EQ(error({.num_beams = 4, .do_sample = true}),
            "[search] num_beams must be 1 with do_sample, got 4.");
  EXPECT_EQ(
      error({.temperature = 0}),
      "[search] temperature must be positive (without do_sample the search is greedy), got 0.");
  EXPECT_EQ(
      error({.temperature = INFINITY}),
      "[search] temperature must be positive (without do_sample the search is greedy), got inf.");
  EXPECT_EQ(error({.top_k = -1}), "[search] top_k must be at least 0, got -1.");
  EXPECT_EQ(error({.min_p = 1}), "[search] min_p must be in [0, 1), got 1.");
  EXPECT_EQ(error({.min_p = NAN}), "[search] min_p must be in [0, 1), got nan.");
  EXPECT_EQ(error({.top_p = 0}), "[search] top_p must be in (0, 1], got 0.");
  EXPECT_EQ(error({.top_p = 1.5}), "[search] top_p must be in (0, 1], got 1.5.");
  EXPECT_EQ(error({.top_p = NAN}), "[search] top_p must be in (0, 1], got nan.");
  EXPECT_EQ(error({.frequency_penalty = NAN}),
            "[search] frequency_penalty must be finite, got nan.");
  EXPECT_EQ(error({.presence_penalty = INFINITY}),
            "[search] presence_penalty must be finite, got inf.");
  EXPECT_EQ(error({.repetition_penalty = 0}),
            "[search] repetition_penalty must be positive, got 0.");
  EXPECT_EQ(error({.no_repeat_ngram_size = -2}),
            "[search] no_repeat_ngram_size must be at least 0, got -2.");
  EXPECT_EQ(error({.min_new_tokens = -1}), "[search] min_new_tokens must be at least 0, got -1.");
  EXPECT_EQ(error({.min_new_tokens = 6, .max_new_tokens = 5}),
            "[search] min_new_tokens must be at most max_new_tokens, got 6 and 5.");
  EXPECT_EQ(error({.max_length_ratio = 0}),
            "[search] max_length_ratio must be in (0, 100], got 0.");
  EXPECT_EQ(error({.max_length_ratio = 1e308}),
            "[search] max_length_ratio must be in (0, 100], got 1e+308.");
  try {
    SearchOptions{.top_k = -1}.validate();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
  }
}

TEST(SearchTasks, ThatDoNotFitTogetherAreRefused) {
  const Table table(1);
  for (const int64_t beams : {1, 2}) {
    const auto error = [&](auto&& spoil) {
      SearchTask task = task_of({4, 4});
      spoil(task);
      TableModel model(table);
      return error_of([&] { search(model, task, {.num_beams = beams}); });
    };
    EXPECT_EQ(error([](SearchTask&) {}), "");
    EXPECT_EQ(error([](SearchTask& t) { t.max_lengths.pop_back(); }),
              "[search] expected one length limit for each of 2 sentences, got 1.");
    EXPECT_EQ(error([](SearchTask& t) { t.max_lengths[1] = 0; }),
              "[search] expected a length limit >= 1 for sentence 1, got 0.");
    EXPECT_EQ(error([](SearchTask& t) { t.prompts = {{kBos}}; }),
              "[search] expected one prompt for each of 2 sentences, got 1.");
    EXPECT_EQ(error([](SearchTask& t) {
                t.prompts = {{kBos}, {}};
              }),
              "[search] the prompt of sentence 1 is empty.");
    EXPECT_EQ(error([](SearchTask& t) {
                t.sequence_ids = {1, 2, 3};
              }),
              "[search] expected one sequence id for each of 2 sentences, got 3.");
    EXPECT_EQ(error([](SearchTask& t) { t.prefixes = {{4}}; }),
              "[search] expected one prefix for each of 2 sentences, got 1.");
    EXPECT_EQ(error([](SearchTask& t) {
                t.prefixes = {{}, {4, 5, 4, 5}};
              }),
              "[search] the prefix of sentence 1 must be shorter than its limit.");
    EXPECT_EQ(error([](SearchTask& t) {
                t.prefixes = {{}, {7}};
              }),
              "[search] a prefix has token 7, the vocabulary has 7 tokens.");
    EXPECT_EQ(error([](SearchTask& t) { t.sources = {{4}}; }),
              "[search] expected one source for each of 2 sentences, got 1.");
    EXPECT_EQ(error([](SearchTask& t) { t.eos_id = 7; }),
              "[search] eos is 7, the vocabulary has 7 tokens.");
  }
  TableModel model(table);
  EXPECT_EQ(
      error_of([&] { beam_search(model, task_of({4}), {.num_beams = 1, .do_sample = true}); }),
      "[beam_search] expected a search without do_sample.");
  SearchTask nothing = task_of({});
  EXPECT_TRUE(generate(model, nothing, {}).empty());
  EXPECT_TRUE(beam_search(model, nothing, {}).empty());
}

}  // namespace
}  // namespace tapestry
