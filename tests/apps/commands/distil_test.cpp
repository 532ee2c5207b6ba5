// tapestry distil: what translate would say, chosen and left out, in any order of work, and a
// student that trains on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "apps/checkpoint/folder_lock.h"
#include "apps/commands/distil/corpus_translator.h"
#include "data/scores/chrf.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == '\t') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

class DistilTest : public testing::Test {
 protected:
  DistilTest() {
    // One that has learnt to turn the words around, a little.
    static const TinyRunFolder trained("distil-teacher");
    static const int code =
        trained.train("translation", "run",
                      {"training.max_steps=1500", "training.eval_steps=500",
                       "training.save_steps=500", "model.hidden_size=32", "model.dropout=0"});
    EXPECT_EQ(code, 0) << trained.messages();
    fs::copy(trained.path("run"), folder_.path("teacher"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  TinyRunFolder::Outcome distil(const std::string& output, const std::string& options = "") const {
    return folder_.run("distil teacher --output " + output + ' ' + options);
  }
  std::string file(const std::string& name) const { return read_file(folder_.path(name)); }
  std::vector<std::vector<std::string>> rows(const std::string& name) const {
    std::vector<std::vector<std::string>> all;
    for (const std::string& line : lines_of(file(name))) all.push_back(cells_of(line));
    return all;
  }
  /// The options refuse before work: nothing is there afterwards.
  std::string refusal(const std::string& arguments, int code) const {
    const TinyRunFolder::Outcome outcome = folder_.run("distil " + arguments);
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.err;
    EXPECT_FALSE(fs::exists(folder_.path("refused"))) << arguments;
    return outcome.err;
  }

  TinyRunFolder folder_{"distil"};
};

TEST_F(DistilTest, WritesWhatTranslateSaysAndAStudentThatTrains) {
  const TinyRunFolder::Outcome outcome =
      distil("made",
             "--beam-size 3 --student model.hidden_size=8 model.num_attention_heads=1 "
             "training.max_steps=4");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const auto sources = lines_of(file("train.src"));
  const auto translations =
      lines_of(folder_.output("translate --model teacher --beam-size 3 --input train.src"));
  const auto pairs = rows("made/corpus.tsv"), left_out = rows("made/left_out.tsv");
  ASSERT_EQ(pairs.size() + left_out.size(), sources.size());
  EXPECT_GT(pairs.size(), 100U);
  size_t kept = 0, dropped = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<std::string> pair = {sources[i], translations[i]};
    if (kept < pairs.size() && pairs[kept] == pair) {
      ++kept;
      continue;
    }
    ASSERT_LT(dropped, left_out.size()) << sources[i];
    EXPECT_EQ(left_out[dropped].at(2), sources[i]);
    EXPECT_EQ(left_out[dropped++].at(3), translations[i]);
  }
  const std::string counts = concat("200 sources translated, ", kept, " pairs kept");
  EXPECT_THAT(outcome.err, HasSubstr(counts));
  const auto record = nlohmann::json::parse(file("made/distil.json"));
  EXPECT_EQ(record.at("pairs"), kept);
  EXPECT_EQ(record.at("finished"), true);
  for (const auto& entry : fs::directory_iterator(folder_.path("made"))) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("piece-")) << entry.path();
  }
  // The folder may move, and the teacher may be gone.
  fs::rename(folder_.path("made"), folder_.path("moved"));
  fs::remove_all(folder_.path("teacher"));
  const TinyRunFolder::Outcome trained = folder_.run("train moved/student.yaml output_dir=student");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr(concat("training data: ", kept, " read, ", kept, " kept")));
  EXPECT_THAT(folder_.output("inspect student"), HasSubstr("8"));
}

TEST_F(DistilTest, BatchesAndThreadsChangeNothing) {
  for (const std::string search :
       {"--beam-size 3", "--do-sample --n-best 2 --keep-best-by chrf", "--beam-size 1",
        "--beam-size 3 --n-best 3 --keep-best-by none --min-score -0.3"}) {
    SCOPED_TRACE(search);
    for (const std::string name : {"one", "other"}) fs::remove_all(folder_.path(name));
    ASSERT_EQ(distil("one", search + " --threads 1 --batch-size 64").code, 0);
    ASSERT_EQ(distil("other", search + " --threads 2 --batch-size 3").code, 0);
    for (const std::string name : {"/corpus.tsv", "/left_out.tsv"}) {
      EXPECT_EQ(file("one" + name), file("other" + name));
    }
  }
}

TEST_F(DistilTest, AKilledOneGoesOn) {
  std::string sources;
  for (int i = 0; i < 25; ++i) sources += file("train.src");
  folder_.write("many.src", sources);
  const std::string options = "--input many.src --beam-size 2 --keep 0.7";
  ASSERT_EQ(distil("whole", options + " --threads 1").code, 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string shell = concat("cd '", folder_.path(""), "' && exec '", tapestry_binary(),
                                     "' distil teacher --output killed ", options, " 2>killed.err");
    execl("/bin/sh", "sh", "-c", shell.c_str(), nullptr);
    _exit(99);
  }
  for (int i = 0; i < 6000 && !fs::exists(folder_.path("killed/piece-000000.jsonl")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  TinyRunFolder::wait(child);
  ASSERT_FALSE(fs::exists(folder_.path("killed/corpus.tsv")));
  const TinyRunFolder::Outcome other = distil("killed", options + " --length-penalty 0.3");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("expected what began there, but keys/generation.length_penalty "
                                   "was \"1\" and is \"0.3\""));
  const TinyRunFolder::Outcome rest = distil("killed", options + " --threads 2 --batch-size 5");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("goes on after "));
  for (const std::string name : {"/corpus.tsv", "/left_out.tsv", "/distil.json"}) {
    EXPECT_EQ(file("whole" + name), file("killed" + name)) << name;
  }
  EXPECT_GT(rows("whole/corpus.tsv").size(), 3000U);
  EXPECT_THAT(distil("killed", options).err, HasSubstr("is finished; choose another --output."));
}

// What is translated decides, not only the bytes of the files.
TEST_F(DistilTest, AnotherReadingOfTheDataDoesNotGoOn) {
  folder_.write("pairs.tsv", "ba ce di\tdi ce ba\nfo gu ha\tha gu fo\n");
  const auto cut_short = [&] {
    auto record = nlohmann::json::parse(file("made/distil.json"));
    record["finished"] = false;
    folder_.write("made/distil.json", record.dump());
  };
  const std::string data = "--data tsv=pairs.tsv header=";
  ASSERT_EQ(distil("made", data + "no").code, 0);
  cut_short();
  EXPECT_THAT(distil("made", data + "yes").err,
              HasSubstr("but corpora/0/header was \"no\" and is \"yes\""));
  EXPECT_THAT(distil("made", data + "no source_column=2 target_column=1").err,
              HasSubstr("but corpora/0/source_column was \"1\" and is \"2\""));
  const auto record = nlohmann::json::parse(file("made/distil.json"));
  const auto& model = record.at("distil").at("models").at(0);
  for (const char* name : {"model.safetensors", "config.json", "source.model"}) {
    EXPECT_TRUE(model.contains(name)) << name << " in " << model;
  }
  EXPECT_EQ(distil("made", data + "no").code, 0);
}

// The log-probability of a token as `translate --detail jsonl` has it.
TEST_F(DistilTest, TheBestScoresAreKept) {
  const std::string search = "--beam-size 2 ";
  std::vector<double> scores;
  for (const std::string& line : lines_of(folder_.output(
           "translate --model teacher --detail jsonl --input train.src " + search))) {
    const auto best = nlohmann::json::parse(line).at("translations").at(0);
    scores.push_back(best.at("log_probability").get<double>() /
                     static_cast<double>(best.at("tokens").size() + 1));
  }
  std::vector<double> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater());
  size_t count = 50;  // a share that no equal scores straddle
  while (sorted[count - 1] - sorted[count] < 1e-5) ++count;
  const double least = (sorted[count - 1] + sorted[count]) / 2;
  const double share = static_cast<double>(count) / static_cast<double>(sorted.size());
  ASSERT_EQ(distil("share", search + concat("--keep ", share)).code, 0);
  ASSERT_EQ(distil("least", search + concat("--min-score ", least)).code, 0);
  EXPECT_EQ(file("share/corpus.tsv"), file("least/corpus.tsv"));
  const auto kept = rows("share/corpus.tsv"), left_out = rows("share/left_out.tsv");
  EXPECT_EQ(kept.size(), count);
  ASSERT_EQ(left_out.size(), sorted.size() - count);
  for (const auto& row : left_out) {
    EXPECT_EQ(row.at(0), "low score");
    EXPECT_LT(std::stod(row.at(1)), least);
  }
}

TEST_F(DistilTest, ReferencesChooseAmongTheNBest) {
  const std::string search = "--do-sample --temperature 2 --n-best 4 ";
  ASSERT_EQ(distil("chrf", search + "--keep-best-by chrf").code, 0);
  ASSERT_EQ(distil("score", search).code, 0);
  ASSERT_EQ(distil("all", search + "--keep-best-by none").code, 0);
  const auto chosen = rows("chrf/corpus.tsv"), first = rows("score/corpus.tsv");
  const auto references = lines_of(file("train.tgt"));
  std::map<std::string, std::string> reference_of;
  const auto sources = lines_of(file("train.src"));
  for (size_t i = 0; i < sources.size(); ++i) reference_of[sources[i]] = references[i];
  const auto chrf = [&](const std::vector<std::vector<std::string>>& pairs) {
    std::vector<std::string> hypotheses, truths;
    for (const auto& pair : pairs) {
      hypotheses.push_back(pair[1]);
      truths.push_back(reference_of.at(pair[0]));
    }
    return corpus_chrf(hypotheses, truths).score;
  };
  EXPECT_GT(chosen.size(), 150U);
  EXPECT_GT(chrf(chosen), chrf(first) + 1);
  std::set<std::vector<std::string>> all;
  for (const auto& row : rows("all/corpus.tsv")) all.insert(row);
  EXPECT_GT(all.size(), chosen.size());
  for (const auto& row : chosen) EXPECT_TRUE(all.contains(row));
}

TEST_F(DistilTest, EveryReasonIsCountedAndNamed) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "ba ce ";
  folder_.write("odd.src", "ba ce di\n\n" + words + "\nfo gu ha je\n\xC3\n");
  const TinyRunFolder::Outcome outcome = distil("made", "--input odd.src --max-new-tokens 1");
  EXPECT_EQ(outcome.code, 3) << outcome.err;  // all are cut
  EXPECT_THAT(outcome.err, HasSubstr("no translation of 3 sources is left"));
  EXPECT_THAT(outcome.err, HasSubstr("corpus: 5 read, 3 kept")) << "it is said before the work";
  const TinyRunFolder::Outcome rest = distil("rest", "--input odd.src --most-times 1.2");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("corpus: 5 read, 3 kept; dropped: 1 invalid_utf8"));
  EXPECT_THAT(rest.err, HasSubstr("1 empty"));
  EXPECT_THAT(rest.err, HasSubstr("left out: 1 overlong"));
  EXPECT_EQ(rows("rest/left_out.tsv").at(0).at(0), "overlong");
}

// The limit is the student's, and holds for both sides: it reads all that is kept.
TEST_F(DistilTest, TheStudentReadsEveryPair) {
  const std::string student = "--beam-size 1 --student data.max_length=5 training.max_steps=2";
  const TinyRunFolder::Outcome outcome = distil("made", student);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto record = nlohmann::json::parse(file("made/distil.json"));
  EXPECT_EQ(record.at("student").at(0), "data.max_length=5");
  EXPECT_EQ(record.at("keep"), nullptr);
  EXPECT_GT(record.at("left_out").at("overlong"), 10);
  const TinyRunFolder::Outcome trained = folder_.run("train made/student.yaml output_dir=student");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const size_t kept = rows("made/corpus.tsv").size();
  EXPECT_THAT(trained.err, HasSubstr(concat("training data: ", kept, " read, ", kept, " kept")));
}

std::vector<int32_t> numbered(const std::string& text) {
  std::map<std::string, int32_t> known;
  std::vector<int32_t> ids;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    ids.push_back(known.try_emplace(word, static_cast<int32_t>(known.size())).first->second);
  }
  return ids;
}

TEST(ShareOfRepeats, OrdinarySentencesHaveLittle) {
  for (const char* text :
       {"", "yes", "no no no", "a man in a blue shirt stands on a ladder and cleans a window",
        "she sells sea shells by the sea shore and the shells that she sells are sea shells",
        "the committee of the regions and the committee of the parliament met in the city of the "
        "seven hills and in the city of the two rivers",
        "row row row your boat gently down the stream merrily merrily merrily merrily life is but "
        "a dream"}) {
    EXPECT_LT(share_of_repeats(numbered(text)), 0.2) << text;
  }
  const std::string loop = "the cat sat on the mat and ";
  EXPECT_EQ(share_of_repeats(numbered("a a a a a a a a")), 0.8);
  EXPECT_GT(share_of_repeats(numbered(loop + loop + loop)), 0.5);
  EXPECT_GT(share_of_repeats(numbered("it began well until it was was was was was was was was")),
            0.3);
}

// One that has learnt nothing but a word, again and again.
TEST_F(DistilTest, ATranslationThatRepeatsItselfIsLeftOut) {
  std::string targets;
  for (int i = 0; i < 200; ++i) targets += "ba ba ba ba ba\n";
  folder_.write("loops.tgt", targets);
  folder_.write("short.src", "ba\n");
  ASSERT_EQ(folder_.train("translation", "loops",
                          {"data.train.target=loops.tgt", "training.max_steps=400",
                           "model.hidden_size=32", "model.dropout=0"}),
            0)
      << folder_.messages();
  const TinyRunFolder::Outcome outcome = folder_.run("distil loops --output made");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(file("made/left_out.tsv.part"), HasSubstr("repeats itself\t"));
  const TinyRunFolder::Outcome all = folder_.run("distil loops --output all --most-repeats 1");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.err, testing::Not(HasSubstr("repeats itself")));
  // Translations, too, must fit into the student's rows.
  const TinyRunFolder::Outcome longer = folder_.run(
      "distil loops --output longer --input short.src --most-repeats 1 --student "
      "data.max_length=4");
  EXPECT_EQ(longer.code, 3);
  EXPECT_THAT(file("longer/left_out.tsv.part"), HasSubstr("overlong\t"));
  EXPECT_THAT(file("longer/left_out.tsv.part"), HasSubstr("ba ba ba"));
}

// Models take minutes to load: a second start finds the lock first.
TEST_F(DistilTest, ALockedFolderIsRefusedFirst) {
  fs::create_directories(folder_.path("busy"));
  const FolderLock lock(folder_.path("busy"), "test", FolderLock::Children::kDoNot);
  ASSERT_TRUE(lock.take());
  const TinyRunFolder::Outcome outcome = folder_.run("distil nowhere --output busy");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("[distil] another distil is running in "));
  EXPECT_THAT(outcome.err, HasSubstr("; choose another --output."));
}

TEST_F(DistilTest, SeveralTeachersAndWeightsOfPairs) {
  std::string ones;
  for (int i = 0; i < 200; ++i) ones += i % 2 == 0 ? "1\n" : "0.5\n";
  folder_.write("weights.txt", ones);
  ASSERT_EQ(folder_.train("translation", "weighted",
                          {"data.train={source: train.src, target: train.tgt, pair_weights: "
                           "weights.txt}",
                           "training.max_steps=300", "model.hidden_size=32", "model.dropout=0"}),
            0);
  const TinyRunFolder::Outcome outcome = folder_.run(
      "distil weighted teacher --weights .1,.9 --output made --student training.max_steps=2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto pairs = rows("made/corpus.tsv");
  const auto sources = lines_of(file("train.src")),
             translations = lines_of(folder_.output(
                 "translate --model weighted --model teacher --weights .1,.9 --input train.src"));
  EXPECT_GT(pairs.size(), 150U);
  std::set<std::vector<std::string>> expected;
  for (size_t i = 0; i < sources.size(); ++i) {
    expected.insert({sources[i], translations[i], i % 2 == 0 ? "1" : "0.5"});
  }
  for (const auto& pair : pairs) EXPECT_TRUE(expected.contains(pair)) << pair.at(0);
  ASSERT_EQ(folder_.run("train made/student.yaml").code, 0);
}

TEST_F(DistilTest, RefusesBeforeItWorks) {
  ASSERT_EQ(
      folder_.train("translation", "other", {"tokenizer.vocab_size=35", "training.max_steps=2"}),
      0);
  ASSERT_EQ(folder_.train("clm", "text", {"training.max_steps=2"}), 0);
  EXPECT_THAT(refusal("teacher other --output refused", 3), HasSubstr("other"));
  EXPECT_THAT(refusal("text --output refused", 3), HasSubstr("[distil] expected a model of task"));
  EXPECT_THAT(refusal("nowhere --output refused", 3), HasSubstr("nowhere"));
  EXPECT_THAT(refusal("teacher --output refused --keep 1.5", 2), HasSubstr("--keep"));
  EXPECT_THAT(refusal("teacher --output refused --min-score 1", 2), HasSubstr("--min-score"));
  EXPECT_THAT(refusal("teacher --output refused --keep 0.5 --min-score -1", 2),
              HasSubstr("--keep"));
  EXPECT_THAT(refusal("teacher --output refused --n-best 9", 2), HasSubstr("--n-best"));
  EXPECT_THAT(refusal("teacher --output refused --input nothing.src", 3), HasSubstr("nothing.src"));
  EXPECT_THAT(refusal("teacher --output refused --keep-best-by chrf --input train.src", 2),
              HasSubstr("needs references"));
  EXPECT_THAT(refusal("teacher --output refused --student model.hiden_size=8", 2),
              HasSubstr("did you mean 'hidden_size'"));
  EXPECT_THAT(refusal("teacher --output refused --student model.num_attention_heads=3", 2),
              HasSubstr("num_attention_heads"));
  EXPECT_THAT(folder_.run("distil teacher --output teacher").err,
              HasSubstr("exists and is no folder of tapestry distil"));
  EXPECT_THAT(folder_.run("distil teacher --output train.src").err,
              HasSubstr("exists and is no folder of tapestry distil"));
}

}  // namespace
}  // namespace tapestry
