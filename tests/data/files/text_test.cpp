#include "data/files/text.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdio>
#include <thread>

#include "data/files/unpacked_file.h"
#include "data/files/utf8.h"
#include "tests/data/files/compressed_files.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  EXPECT_EQ(reader.line_number(), static_cast<int64_t>(lines.size()));
  return lines;
}

std::string plain(const std::string& text) { return text; }

std::string name_of(const testing::TestParamInfo<Compressor>& info) { return info.param.name; }

// Each rule holds for plain and for packed files.
class TextLines : public testing::TestWithParam<Compressor> {
 protected:
  std::vector<std::string> read(const std::string& bytes) {
    return lines_of(folder_.write("text", GetParam().pack(bytes)));
  }
  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(In, TextLines, testing::Values(Compressor{"plain", plain}), name_of);
INSTANTIATE_TEST_SUITE_P(Packed, TextLines, testing::ValuesIn(kCompressors), name_of);

TEST_P(TextLines, EndAtLineFeedsOnly) {
  EXPECT_THAT(read("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(read("a\r\nb\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(read("a\rb\nc\n"), ElementsAre("a\rb", "c"));
  EXPECT_THAT(read("a\xE2\x80\xA8z\xC2\x85z\vb\fc\n"),
              ElementsAre("a\xE2\x80\xA8z\xC2\x85z\vb\fc"));
}

TEST_P(TextLines, KeepTheLastOneWithoutLineFeed) {
  EXPECT_THAT(read("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(read("a\n\n"), ElementsAre("a", ""));
  EXPECT_THAT(read("\n"), ElementsAre(""));
}

TEST_P(TextLines, LoseTheByteOrderMarkAtTheStart) {
  EXPECT_THAT(read("\xEF\xBB\xBF"
                   "a\n\xEF\xBB\xBF"
                   "b\n"),
              ElementsAre("a",
                          "\xEF\xBB\xBF"
                          "b"));
}

TEST_P(TextLines, KeepNulBytes) {
  using std::string_literals::operator""s;
  EXPECT_THAT(read("a\0b\nc\n"s), ElementsAre("a\0b"s, "c"));
}

TEST_P(TextLines, MayBeLongerThanTheBuffer) {
  const std::string megabyte(1 << 20, 'x');
  EXPECT_THAT(read("a\n" + megabyte + "\r\n" + megabyte), ElementsAre("a", megabyte, megabyte));
}

TEST_P(TextLines, MeetBufferEdgesAnywhere) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 30000; ++i) {
    expected.push_back(std::string(static_cast<size_t>(i % 11), 'a') + std::to_string(i));
    text += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  EXPECT_EQ(read(text), expected);
}

TEST_P(TextLines, OfAnOldMacAreAnError) {
  for (const char* const bytes : {"a\rb\rc\r", "a\rb", "\xEF\xBB\xBF\r\r"}) {
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { read(bytes); }),
                HasSubstr("text has lines that end in CR only, as on an old Mac, expected LF or CR "
                          "LF: tr '\\r' '\\n' <in >out makes it so."))
        << bytes;
  }
  EXPECT_THAT(read("a\r"), ElementsAre("a"));
  EXPECT_THAT(read("a\rb\r\n"), ElementsAre("a\rb"));
  // A CR inside a line that is longer than the buffer.
  const std::string megabyte(1 << 20, 'x');
  EXPECT_THAT(read("a\r" + megabyte + "\nb"), ElementsAre("a\r" + megabyte, "b"));
}

TEST_P(TextLines, OfAnEmptyFileAreAnError) {
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read(""); }),
              HasSubstr("text is empty, expected lines of text."));
}

TEST_P(TextLines, OverTheLimitAreAnError) {
  const std::string bytes = "a\n" + std::string(LineReader::kMaxLineBytes + 1, 'x');
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read(bytes); }),
              HasSubstr("has a line 2 of more than 64 MiB"));
}

class Compressed : public testing::TestWithParam<Compressor> {
 protected:
  std::string pack(const std::string& text) const { return GetParam().pack(text); }
  std::string write(const std::string& bytes) const { return folder_.write("packed", bytes); }
  std::string error_of_lines(const std::string& bytes) const {
    const std::string path = write(bytes);
    return error_of(ErrorKind::kData, [&] { lines_of(path); });
  }
  // "[data] .*packed is a truncated gzip file: ..."
  std::string message(const std::string& before, const std::string& after) const {
    return "\\[data\\] .*packed " + before + ' ' + GetParam().name + ' ' + after +
           ", after line [0-9]+\\.";
  }
  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(With, Compressed, testing::ValuesIn(kCompressors), name_of);

std::string some_text() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::to_string(i * 7919) + " Straße\n";
  return text;
}

TEST_P(Compressed, IsToldByContentNotByName) {
  EXPECT_THAT(lines_of(folder_.write("packed.txt", pack("b\n"))), ElementsAre("b"));
  EXPECT_THAT(lines_of(folder_.write(concat("plain.", GetParam().name), "a\n")), ElementsAre("a"));
}

TEST_P(Compressed, StreamsAreOneText) {
  EXPECT_THAT(lines_of(write(pack("a\nb") + pack("") + pack("c\nd\n"))),
              ElementsAre("a", "bc", "d"));
}

TEST_P(Compressed, PaddingAfterTheStreamsIsIgnored) {
  const std::string zeros(100000, '\0');
  EXPECT_THAT(lines_of(write(pack("a\n") + zeros)), ElementsAre("a"));
  EXPECT_THAT(lines_of(write(pack("a\n") + zeros + pack("b\n"))), ElementsAre("a", "b"));
}

TEST_P(Compressed, TruncatedNamesThePlace) {
  const std::string packed = pack(some_text());
  // What is shorter does not tell its kind.
  constexpr size_t kShortest = 10;
  for (size_t size = kShortest; size < packed.size(); ++size) {
    ASSERT_THAT(error_of_lines(packed.substr(0, size)),
                testing::MatchesRegex(
                    message("is a truncated", concat("file: it ends at compressed byte ", size))));
    if (size == kShortest + 100) size = packed.size() - 100;
  }
  // The second of two streams.
  ASSERT_THAT(
      error_of_lines(pack("a\n") + packed.substr(0, packed.size() / 2)),
      testing::MatchesRegex(message("is a truncated", "file: it ends at compressed byte [0-9]+")));
}

TEST_P(Compressed, DamageIsAnErrorOrDoesNotMatter) {
  const std::string text = some_text();
  const std::string packed = pack(text);
  int64_t errors = 0;
  for (size_t byte = 0; byte < packed.size(); ++byte) {
    std::string damaged = packed;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1 << byte % 8);
    if (damaged.substr(0, 10) != packed.substr(0, 10)) continue;  // may tell no kind any more
    const std::string path = write(damaged);
    try {
      ASSERT_EQ(read_unpacked(path), text) << "one wrong bit in byte " << byte;
    } catch (const Error& error) {
      // Damage may also pass for an early end of the stream, or make it seem longer.
      EXPECT_THAT(error.what(), testing::ContainsRegex(concat(GetParam().name, " (file|data)")));
      ++errors;
    }
  }
  EXPECT_GT(errors, static_cast<int64_t>(packed.size() * 9 / 10));
}

TEST_P(Compressed, ForeignBytesBehindTheDataAreErrors) {
  const std::string packed = pack("a\n");
  EXPECT_THAT(error_of_lines(packed + "text, and more of it\n"),
              testing::MatchesRegex(message("has bytes after its",
                                            concat("data that are no ", GetParam().name,
                                                   " data, at compressed byte ", packed.size()))));
}

TEST_P(Compressed, PipesAreReadToo) {
  const std::string path = folder_.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string text = some_text();
  std::thread writer([&] { std::ofstream(path, std::ios::binary) << pack(text); });
  EXPECT_EQ(read_unpacked(path), text);
  writer.join();
}

TEST(Gzip, WrongChecksumIsAnError) {
  TempFolder folder;
  std::string packed = gzip(std::string(1000, 'a') + "\nbcd\n");
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 1);
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.write("a.gz", packed)); }),
              HasSubstr("a.gz is a damaged gzip file (incorrect data check), at compressed byte "));
}

TEST(Gzip, IsToldByTwoBytes) {
  TempFolder folder;
  EXPECT_THAT(lines_of(folder.write("one_byte", "\x1F")), ElementsAre("\x1F"));
  EXPECT_THAT(
      error_of(ErrorKind::kData, [&] { lines_of(folder.write("cut.gz", gzip("a").substr(0, 2))); }),
      HasSubstr("cut.gz is a truncated gzip file: it ends at compressed byte 2, after line 0."));
}

TEST(Zstd, SkippableFramesHoldNoText) {
  using std::string_literals::operator""s;
  const std::string skipped = "\x53\x2A\x4D\x18\x04\x00\x00\x00.\n.\n"s;
  TempFolder folder;
  EXPECT_THAT(lines_of(folder.write("a", skipped + zstd("a\n") + skipped + zstd("b\n") + skipped)),
              ElementsAre("a", "b"));
}

TEST(Zstd, FramesWithoutAChecksumAreReadWhole) {
  const std::string text = some_text();
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  TempFolder folder;
  EXPECT_EQ(read_unpacked(folder.write("a", packed)), text);
  packed.pop_back();
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_unpacked(folder.write("a", packed)); }),
              HasSubstr("a is a truncated zstd file: it ends at compressed byte"));
}

TEST(Files, OfZipAreErrors) {
  TempFolder folder;
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.write("a", "PK\x03\x04 text\n")); }),
              HasSubstr("a is a zip file, expected text, gzip, zstd, xz or bzip2."));
}

TEST(Files, ThatOnlyBeginLikeCompressedOnesAreText) {
  TempFolder folder;
  for (const char* line : {"BZh is no word", "BZh91 is no word", "(/ is a face", "7zXZ", "P*M"}) {
    EXPECT_THAT(lines_of(folder.write("text", concat(line, '\n'))), ElementsAre(line));
  }
}

TEST(Files, ThatCannotBeReadAreErrors) {
  TempFolder folder;
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.path("none")); }),
              HasSubstr("none cannot be opened: No such file or directory."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(folder.path("")); }),
              HasSubstr("is a directory, expected a file."));
  // Opens, but has nothing mapped at its first byte.
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of("/proc/self/mem"); }),
              HasSubstr("/proc/self/mem cannot be read at byte 0: Input/output error."));
  const auto locked = folder.write("locked", "a\n");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (geteuid() == 0) return;  // root reads everything
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { lines_of(locked); }),
              HasSubstr("locked cannot be opened: Permission denied."));
}

TEST(Utf8, FindsTheFirstIllFormedByte) {
  for (const char* text : {"", "plain", "ß", "€", "👍", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_EQ(find_invalid_utf8(text), std::string::npos) << text;
  }
  for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xE2\x82", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("aß") + bad + "z"), 3u);
  }
}

TEST(Utf8, DecodesAndEncodes) {
  const std::string text = "aß€👍";
  EXPECT_EQ(decode_utf8(text), U"aß€👍");
  std::string again;
  for (const char32_t c : decode_utf8(text)) append_utf8(again, c);
  EXPECT_EQ(again, text);
  EXPECT_EQ(decode_utf8("a\xE2\x82z"), U"a\uFFFD\uFFFDz");
}

// Python's answers; see tests/fixtures/lower_case.py.
TEST(Utf8, LowersCaseAsPythonDoes) {
  int64_t texts = 0;
  for (const std::string& line : lines_of(project_file("tests/fixtures/lower_case.tsv"))) {
    const size_t tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos);
    EXPECT_EQ(lower_case(line.substr(0, tab)), line.substr(tab + 1)) << line;
    ++texts;
  }
  EXPECT_GT(texts, 1400);
}

TEST(Utf8, MakesASigmaFinalWherePythonDoes) {
  const auto is_final = [](const std::string& text) {
    return lower_case(text).find("ς") != std::string::npos;
  };
  int64_t points = 0;
  for (const std::string& line : lines_of(project_file("tests/fixtures/final_sigma.tsv"))) {
    uint32_t first = 0;
    uint32_t last = 0;
    char expected[5] = {};
    ASSERT_EQ(std::sscanf(line.c_str(), "%X\t%X\t%4s", &first, &last, expected), 3) << line;
    for (uint32_t point = first; point <= last; ++point, ++points) {
      std::string c;
      append_utf8(c, point);
      std::string found;
      for (const std::string& text : {"AΣ" + c, "AΣ" + c + "B", c + "Σ", "A" + c + "Σ"}) {
        found += is_final(text) ? '1' : '0';
      }
      ASSERT_EQ(found, expected) << std::hex << point;
    }
  }
  EXPECT_GT(points, 250000);
}

TEST(Utf8, LowersCaseAroundIllFormedBytes) {
  EXPECT_EQ(lower_case("A\xE2\x82Z\xFF"), "a\uFFFD\uFFFDz\uFFFD");
  EXPECT_EQ(lower_case("ΑΣ\xC3"), "ας\uFFFD");
}

TEST(Utf8, SeesWhiteSpaceAsPythonDoes) {
  // [c for c in map(chr, range(0x110000)) if c.isspace()]
  const std::u32string python =
      U"\t\n\v\f\r\x1C\x1D\x1E\x1F \x85\xA0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
      U"\u2008\u2009\u200A\u2028\u2029\u202F\u205F\u3000";
  std::u32string spaces;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (is_space(c)) spaces.push_back(c);
  }
  EXPECT_EQ(spaces, python);
}

TEST(Utf8, StripsWhiteSpaceAtTheEnds) {
  EXPECT_EQ(strip(" \t\u00a0a b\u3000\n"), "a b");
  EXPECT_EQ(strip("a"), "a");
  EXPECT_EQ(strip("\u00e9 "), "\u00e9");
  EXPECT_EQ(strip(" \n"), "");
  EXPECT_EQ(strip(""), "");
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(find_invalid_utf8(text), std::string::npos);
    ASSERT_EQ(decode_utf8(text), std::u32string(1, c));
    // Cut, it is as many ill-formed bytes as are left.
    text.pop_back();
    ASSERT_EQ(decode_utf8(text), std::u32string(text.size(), U'\uFFFD'));
  }
}

}  // namespace
}  // namespace tapestry
