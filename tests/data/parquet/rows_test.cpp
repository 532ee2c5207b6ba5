#include "data/parquet/rows.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/files/files.h"
#include "data/parquet/pages.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry::parquet {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

constexpr const char* kVariants[] = {"pairs_snappy_v1", "pairs_zstd_v2", "pairs_gzip_plain",
                                     "pairs_none_v2"};

std::string fixture(const std::string& name) {
  return project_file("tests/fixtures/parquet/" + name);
}

std::vector<Json> rows_of(const std::string& path, const std::vector<std::string>& fields = {}) {
  RowReader reader(path, fields);
  std::vector<Json> rows;
  for (std::string line; reader.next(line);) {
    rows.push_back(Json::parse(line));
    EXPECT_EQ(reader.row(), std::ssize(rows));
  }
  return rows;
}

std::string refusal(const std::string& path, const std::vector<std::string>& fields = {}) {
  const std::string text = error_of(ErrorKind::kData, [&] { rows_of(path, fields); });
  return text.substr(text.find(".parquet ") + 9);
}

TEST(ParquetTest, RowsAreThoseOfTheirWriter) {
  const Json all = Json::parse(read_file(fixture("rows.json")));
  for (const std::string name : kVariants) {
    EXPECT_EQ(Json(rows_of(fixture(name + ".parquet"))), all) << name;
  }
}

TEST(ParquetTest, OnlyWhatIsAskedForIsRead) {
  for (const std::string name : kVariants) {
    const std::vector<Json> rows =
        rows_of(fixture(name + ".parquet"), {"translation.en", "tags", "none"});
    ASSERT_EQ(rows.size(), 11U);
    EXPECT_EQ(rows[5].dump(), R"({"tags":[35,-1],"translation":{"en":"A dog 2."}})") << name;
  }
  for (const std::string name : kVariants) {  // in a list of groups, too
    const std::vector<Json> rows = rows_of(fixture(name + ".parquet"), {"messages.content"});
    EXPECT_EQ(rows[0].dump(), R"({"messages":[]})") << name;
    EXPECT_EQ(rows[1].dump(), R"({"messages":[{"content":"Question 1?"}]})") << name;
  }
  EXPECT_THAT(RowReader(fixture("pairs_zstd_v2.parquet"), {"none"}).names(),
              ElementsAre("id", "translation.en", "translation.de", "tokens", "tags", "messages",
                          "score", "half", "good", "big", "nothing"));
}

TEST(ParquetTest, WhatIsNotReadIsNamed) {
  EXPECT_EQ(refusal(fixture("refused_lz4.parquet"), {"text"}),
            "has a column 'text' that is packed by LZ4_RAW, of which no reader is here; SNAPPY, "
            "GZIP, ZSTD and UNCOMPRESSED are read.");
  EXPECT_EQ(refusal(fixture("refused_delta.parquet"), {"text"}),
            "has a column 'text' that cannot be read: it has the encoding DELTA_BYTE_ARRAY, of "
            "which no reader is here; PLAIN and dictionaries are read.");
  EXPECT_EQ(refusal(fixture("refused_time.parquet"), {"time"}),
            "has a column 'time' that is TIMESTAMP (INT64), of which no reader is here; texts, "
            "whole numbers, floats, doubles and booleans are read, also in lists and groups.");
  // Nobody asks for it.
  EXPECT_EQ(rows_of(fixture("refused_time.parquet"), {"text"}).size(), 1U);
  EXPECT_EQ(rows_of(fixture("refused_time.parquet")).at(0).dump(), R"({"text":"a"})");
}

TEST(ParquetTest, OtherFilesAreRefused) {
  const TempFolder folder;
  const auto of = [&](const std::string& bytes) {
    return refusal(folder.write("x.parquet", bytes));
  };
  const std::string good = read_file(fixture("pairs_none_v2.parquet"));
  EXPECT_EQ(of("PAR1"), "is no Parquet file: it is too short.");
  EXPECT_EQ(of("{\"text\": \"a\"}\n"), "is no Parquet file: it does not begin with PAR1.");
  EXPECT_EQ(of(good.substr(0, good.size() - 1)),
            "is a Parquet file that is cut short: it does not end with PAR1.");
  EXPECT_EQ(of("PARE" + good.substr(4)), "is an encrypted Parquet file.");
  EXPECT_EQ(of("PAR1\xFF\xFF\0\0PAR1"s),
            "is a damaged Parquet file: its footer has no place in it.");
  EXPECT_EQ(of("PAR1\0\1\0\0\0PAR1"s), "is a damaged Parquet file: its columns are no tree.");
  // Each page has a checksum.
  std::string wrong = good;
  wrong[wrong.find("A dog 1.")] = 'B';
  EXPECT_EQ(of(wrong),
            "has a column 'translation.en' that cannot be read: the checksum of a page is wrong.");
}

// A page may claim anything.
TEST(ParquetTest, DamageNeverGoesUnseenOrBeyondTheFile) {
  const TempFolder folder;
  for (const std::string name : kVariants) {
    const std::string good = read_file(fixture(name + ".parquet"));
    for (size_t at = 0; at < good.size(); at += 3) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      try {
        RowReader reader(folder.write("x.parquet", bad), {});
        std::string line;
        for (int i = 0; i < 1000 && reader.next(line); ++i) {
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
      }
    }
  }
}

TEST(ParquetTest, SnappyCopiesWhatItHasMade) {
  const auto unpack = [](const std::string& packed, size_t size) {
    std::string out;
    const char* const damage = unpack_snappy(packed, size, out);
    return damage != nullptr ? concat('!', damage) : out;
  };
  EXPECT_EQ(unpack("\x03\x08"s + "abc", 3), "abc");
  EXPECT_EQ(unpack("\x0A\x04"s + "ab" + "\x11\x02", 10), "ababababab");            // one byte more
  EXPECT_EQ(unpack("\x08\x04"s + "ab" + "\x16\x02\x00"s, 8), "abababab");          // two
  EXPECT_EQ(unpack("\x08\x04"s + "ab" + "\x17\x02\x00\x00\x00"s, 8), "abababab");  // four
  const std::string text(100, 'x');
  EXPECT_EQ(unpack("\x64\xF0\x63" + text, 100), text);
  EXPECT_EQ(unpack("\x64\xF4\x63\x00"s + text, 100), text);
  EXPECT_THAT(unpack("\x08\x04"s + "ab" + "\x16\x03\x00"s, 8), HasSubstr("what is not there"));
  EXPECT_THAT(unpack("\x08\x04"s + "ab" + "\x16\x00\x00"s, 8), HasSubstr("what is not there"));
  EXPECT_THAT(unpack("\x07\x04"s + "ab" + "\x16\x02\x00"s, 7), HasSubstr("what is not there"));
  EXPECT_THAT(unpack("\x09\x04"s + "ab" + "\x16\x02\x00"s, 9), HasSubstr("cut short"));
  EXPECT_THAT(unpack("\x03\x08"s + "ab", 3), HasSubstr("cut short"));
  EXPECT_THAT(unpack("\x03\x08"s + "abc", 4), HasSubstr("contradict"));
  EXPECT_THAT(unpack("\xFF\xFF\xFF\x7F\x00"s, 0xFFFFFFF), HasSubstr("contradict"));
  EXPECT_THAT(unpack("", 0), HasSubstr("cut short"));
}

}  // namespace
}  // namespace tapestry::parquet
