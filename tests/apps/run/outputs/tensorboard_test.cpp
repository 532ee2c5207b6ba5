// Event files, read back field by field.
#include "apps/run/outputs/tensorboard.h"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The fields of a message: of each number the values, a number as its bytes.
std::multimap<uint32_t, std::string> fields_of(std::string_view bytes) {
  std::multimap<uint32_t, std::string> fields;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes.at(0));
      bytes.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!bytes.empty()) {
    const uint64_t key = varint();
    std::string value;
    if ((key & 7) == 0) {
      const uint64_t number = varint();
      value.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    } else {
      const size_t size = (key & 7) == 2 ? varint() : (key & 7) == 1 ? 8 : 4;
      value = bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
    fields.emplace(static_cast<uint32_t>(key >> 3), value);
  }
  return fields;
}

std::string at(const std::string& message, uint32_t field) {
  const auto fields = fields_of(message);
  const auto found = fields.find(field);
  return found == fields.end() ? "" : found->second;
}

template <class T>
T number(const std::string& bytes) {
  T value = 0;
  std::memcpy(&value, bytes.data(), std::min(sizeof(T), bytes.size()));
  return value;
}

// The Events of all files of the folder, in order, their checksums checked.
std::vector<std::string> events_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  const auto rotated = [](uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; };
  std::vector<std::string> events;
  for (const fs::path& file : files) {
    std::string bytes = read_file(file);
    while (!bytes.empty()) {
      const auto size = number<uint64_t>(bytes.substr(0, 8));
      EXPECT_EQ(number<uint32_t>(bytes.substr(8, 4)), rotated(crc32c(bytes.substr(0, 8))));
      events.push_back(bytes.substr(12, size));
      EXPECT_EQ(number<uint32_t>(bytes.substr(12 + size, 4)), rotated(crc32c(events.back())));
      bytes.erase(0, 16 + size);
    }
  }
  return events;
}

// tag -> (step, value) of the curves.
std::map<std::string, std::vector<std::pair<int64_t, float>>> curves_in(const fs::path& folder) {
  std::map<std::string, std::vector<std::pair<int64_t, float>>> curves;
  for (const std::string& event : events_in(folder)) {
    const auto values = fields_of(at(event, 5));
    for (auto [value, end] = values.equal_range(1); value != end; ++value) {
      const std::string simple = at(value->second, 2);
      if (simple.empty()) continue;
      curves[at(value->second, 1)].emplace_back(number<int64_t>(at(event, 2)),
                                                number<float>(simple));
    }
  }
  return curves;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

class TensorBoardTest : public testing::Test {
 protected:
  const std::vector<std::string> overrides_ = {"training.report_to=[tensorboard]",
                                               "training.max_steps=6", "training.logging_steps=2",
                                               "training.eval_steps=3", "training.save_steps=2"};
  TinyRunFolder folder_{"tensorboard"};
};

TEST_F(TensorBoardTest, ARunHasTheCurvesOfItsMetrics) {
  ASSERT_EQ(folder_.train("translation", "run", overrides_), 0) << folder_.messages();
  const auto events = events_in(folder_.path("run"));
  EXPECT_EQ(at(events.at(0), 3), "brain.Event:2");
  const auto curves = curves_in(folder_.path("run"));
  size_t points = 0;
  for (const nlohmann::json& line : folder_.metrics("run")) {
    for (const auto& [name, value] : line.items()) {
      if (!value.is_number() || name == "step") continue;
      const auto& curve = curves.at(line["kind"].get<std::string>() + "/" + name);
      const std::pair<int64_t, float> point{line["step"].get<int64_t>(), value.get<float>()};
      EXPECT_THAT(curve, testing::Contains(point)) << name;
      ++points;
    }
  }
  EXPECT_GT(points, 20u);
}

TEST_F(TensorBoardTest, TheConfigStandsInTheFirstEvents) {
  ASSERT_EQ(folder_.train("translation", "run", overrides_), 0) << folder_.messages();
  const auto events = events_in(folder_.path("run"));
  EXPECT_THAT(events.at(2), HasSubstr("| training.max_steps | `6` |"));
  EXPECT_THAT(events.at(2), HasSubstr("_hparams_/session_start_info"));
  EXPECT_THAT(events.at(2), HasSubstr("valid/"));
  EXPECT_THAT(events.back(), HasSubstr("_hparams_/session_end_info"));
}

// A later start says from which update on its points replace those that came before.
TEST_F(TensorBoardTest, AResumedRunGoesOnInTheSameCurves) {
  auto stopped = overrides_;
  stopped.push_back("training.max_hours=1e-9");
  ASSERT_EQ(folder_.train("translation", "run", stopped), 0) << folder_.messages();
  EXPECT_THAT(events_in(folder_.path("run")).size(), testing::Gt(2u));
  ASSERT_EQ(folder_.train("translation", "run", overrides_), 0) << folder_.messages();
  std::vector<int64_t> starts;
  for (const std::string& event : events_in(folder_.path("run"))) {
    const std::string session = at(event, 7);
    if (session.empty()) continue;
    EXPECT_EQ(number<int64_t>(at(session, 1)), 1);
    starts.push_back(number<int64_t>(at(event, 2)));
  }
  EXPECT_THAT(starts, ElementsAre(1, 2));  // one update came before the second
  EXPECT_EQ(curves_in(folder_.path("run")).at("train/loss").back().first, 6);
}

TEST_F(TensorBoardTest, AnotherNameIsAnError) {
  EXPECT_EQ(folder_.train("translation", "run", {"training.report_to=[wandb]"}), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("expected tensorboard, got 'wandb'"));
}

}  // namespace
}  // namespace tapestry
