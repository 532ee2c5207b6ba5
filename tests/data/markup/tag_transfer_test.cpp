// Markup that a translation gets from its source, by alignments that are given.
#include "data/markup/tag_transfer.h"

#include <gmock/gmock.h>

#include <random>

#include "core/base/error.h"
#include "data/markup/tag_places.h"

namespace tapestry {
namespace {

using Pairs = std::vector<AlignedText::Pair>;
using testing::ElementsAre;

std::string as_it_is(std::string_view text) { return std::string(text); }

// Each unit is aligned with that of its number.
const Pairs kStraight = {{-1, -1}};

// The translation of a marked source; pairs count units: words and signs.
std::string put(const std::string& source, const std::string& translation, const Pairs& pairs,
                const Pairs& guesses = {}, MarkupFormat format = MarkupFormat::kXml) {
  const MarkedText marked = read_markup(source, format);
  AlignedText aligned{translation, text_units(translation), pairs, guesses};
  if (pairs == kStraight) {
    aligned.pairs.clear();
    const size_t units = std::min(marked.units.size(), aligned.units.size());
    for (int32_t i = 0; i < static_cast<int32_t>(units); ++i) aligned.pairs.emplace_back(i, i);
  }
  return with_markup(marked, aligned, as_it_is);
}
std::string put_html(const std::string& source, const std::string& translation, const Pairs& pairs,
                     const Pairs& guesses = {}) {
  return put(source, translation, pairs, guesses, MarkupFormat::kHtml);
}

std::vector<std::string> units_of(const std::string& text) {
  std::vector<std::string> units;
  for (const TextUnit& unit : text_units(text)) {
    units.push_back(text.substr(unit.begin, unit.end - unit.begin));
  }
  return units;
}

TEST(TextUnits, AreWordsAndSigns) {
  EXPECT_THAT(units_of("don't  stop, 3.14 x."),
              ElementsAre("don't", "stop", ",", "3.14", "x", "."));
  EXPECT_THAT(units_of(" \u00fcber\u00a0uns!"), ElementsAre("\u00fcber", "uns", "!"));
  EXPECT_THAT(units_of(" "), ElementsAre());
  EXPECT_GT(units_of("\u6771\u4eac\u306b\u884c\u304d\u307e\u3059").size(), 1u);  // no spaces
}

TEST(ReadMarkup, TakesTagsOutOfTheText) {
  const auto text = [](const std::string& source) {
    return read_markup(source, MarkupFormat::kXml).text;
  };
  EXPECT_EQ(text("a <b>big</b> house<x id=\"1\"/>."), "a big house.");
  EXPECT_EQ(text("don<b>'</b>t"), "don't");
  EXPECT_EQ(text("<b>Haus</b>t\u00fcr"), "Haust\u00fcr");
  EXPECT_EQ(text("a <x/> b"), "a b");  // one space
  EXPECT_EQ(text("a  b"), "a  b");     // no tag parts it
  EXPECT_EQ(text("a <b> b </b> c"), "a b c");
  EXPECT_EQ(text("<a href=\"x>y\">z</a>"), "z");
  EXPECT_EQ(text("a <!-- > --> b <?pi ?><![CDATA[<c>]]>"), "a b");
  EXPECT_EQ(text("AT&amp;T caf&#233; &quot;it&apos;s&quot;"), "AT&T caf\u00e9 it's");
}

TEST(ReadMarkup, WhatIsNoTagIsText) {
  for (const char* const text :
       {"a < b", "a <b", "1 <2> 3", "x<y and y>z", "<b c=d>", "<b c=\"d>", "< b>", "</>", "<>",
        "a & b", "&;", "& amp;", "<!-- x", "&#xZ;", "<", "&", "<a <"}) {
    EXPECT_EQ(read_markup(text, MarkupFormat::kXml).text, text);
    EXPECT_EQ(put(text, "T", {{0, 0}}), "T");
  }
  EXPECT_EQ(read_markup("<b c=d e>x</B>", MarkupFormat::kHtml).text, "x");
  EXPECT_EQ(read_markup("<b>x</B>", MarkupFormat::kXml).tags.at(0).partner, -1);
}

TEST(TagTransfer, APairEnclosesWhatItsWordsBecame) {
  EXPECT_EQ(put("<b>a</b> c", "A C", kStraight), "<b>A</b> C");
  EXPECT_EQ(put("a <b>b</b> c", "C B A", {{0, 2}, {1, 1}, {2, 0}}), "C <b>B</b> A");
  EXPECT_EQ(put("a <b>b c</b> d", "B X C A D", {{0, 3}, {1, 0}, {2, 2}, {3, 4}}),
            "<b>B X C</b> A D");  // the smallest span that covers them
  EXPECT_EQ(put("das <b>Haus</b>.", "the house.", kStraight), "the <b>house</b>.");
  EXPECT_EQ(put("don<b>'</b>t", "nicht", {{0, 0}}), "nicht<b></b>");
  EXPECT_EQ(put("don<b>'</b>t", "nicht", {{1, 0}}), "<b>nicht</b>");
  EXPECT_EQ(put("don<b>'</b>t", "nicht", {{0, 0}}, {{1, 0}}), "<b>nicht</b>");  // by a guess
  EXPECT_EQ(put("Haus<b>t\u00fcr</b> x", "front door X", {{0, 0}, {1, 1}, {2, 2}}),
            "front <b>door</b> X");
}

TEST(TagTransfer, PairsStayNested) {
  EXPECT_EQ(put("<a>x <b>y</b></a> z", "Y X Z", {{0, 1}, {1, 0}, {2, 2}}), "<a><b>Y</b> X</a> Z");
  EXPECT_EQ(put("<a><b><c>x</c></b></a>", "X", kStraight), "<a><b><c>X</c></b></a>");
  EXPECT_EQ(put("<a>x</a> <b>y</b>", "Y X", {{0, 1}, {1, 0}}), "<b>Y</b> <a>X</a>");
  // Two that would overlap: the first encloses the other.
  EXPECT_EQ(put("<a>w x</a> <b>y z</b>", "W Y X Z", {{0, 0}, {1, 2}, {2, 1}, {3, 3}}),
            "<a>W <b>Y X Z</b></a>");
  EXPECT_EQ(
      put("<o><a>w x</a> <b>y z</b></o> q", "W Y X Z Q", {{0, 0}, {1, 2}, {2, 1}, {3, 3}, {4, 4}}),
      "<o><a>W <b>Y X Z</b></a></o> Q");
}

TEST(TagTransfer, OverlappingPairsAreEachPutBack) {
  EXPECT_EQ(put("<b>x <i>y</b> z</i>", "X Y Z", kStraight), "<b>X <i>Y</b> Z</i>");
  EXPECT_EQ(put("<b>x <i>y</b> z</i> q", "Z Y X Q", {{0, 2}, {1, 1}, {2, 0}, {3, 3}}),
            "<i>Z <b>Y</i> X</b> Q");
}

TEST(TagTransfer, OthersStandBeforeTheNextWord) {
  EXPECT_EQ(put("a <x/>b", "B A", {{0, 1}, {1, 0}}), "<x/>B A");
  EXPECT_EQ(put("a <x/> b", "A B", kStraight), "A <x/> B");
  EXPECT_EQ(put("a<x/> b", "A B", kStraight), "A<x/> B");
  EXPECT_EQ(put("a<x/> <b>b</b>", "A B", kStraight), "A<x/> <b>B</b>");
  EXPECT_EQ(put("a<x/>", "A", kStraight), "A<x/>");
  EXPECT_EQ(put("a <x/>", "A", kStraight), "A <x/>");
  EXPECT_EQ(put("<x/>a <y/><z/>", "A", kStraight), "<x/>A <y/><z/>");
  EXPECT_EQ(put("<x/> a b", "B A", {{0, 1}, {1, 0}}), "B <x/> A");
  EXPECT_EQ(put("a <b>c <x/></b> d", "A C D", kStraight), "A <b>C <x/></b> D");
  EXPECT_EQ(put("a <b>c <x/></b> d", "D C A", {{0, 2}, {1, 1}, {2, 0}}), "D <b>C <x/></b> A");
  EXPECT_EQ(put("a <b></b> c", "A C", kStraight), "A <b></b> C");
  EXPECT_EQ(put("a <b><i/> </b> c", "A C", kStraight), "A <b><i/> </b> C");
  EXPECT_EQ(put("a <b>c", "A C", kStraight), "A <b>C");                         // not closed
  EXPECT_EQ(put("a b</g> c", "C B A", {{0, 2}, {1, 1}, {2, 0}}), "C B</g> A");  // not opened
  EXPECT_EQ(put("</g>a b", "A B", kStraight), "</g>A B");
}

TEST(TagTransfer, UnalignedWords) {
  // The next one that is aligned, or a guess.
  EXPECT_EQ(put("a <x/>b c", "A C", {{0, 0}, {2, 1}}), "A <x/>C");
  EXPECT_EQ(put("a <x/>b c", "A C", {{0, 0}, {2, 1}}, {{1, 0}}), "<x/>A C");
  EXPECT_EQ(put("a <x/>b", "A", {{0, 0}}), "A<x/>");
  // A sign that is aligned with nothing does not move what stands before it.
  EXPECT_EQ(put("a b<x/>.", "A B C.", {{0, 0}, {1, 1}}, {{2, 0}}), "A B<x/> C.");
  EXPECT_EQ(put("a b<x/>.", "A B C.", {{0, 0}, {1, 1}, {2, 3}}), "A B C<x/>.");
  EXPECT_EQ(put("a b <x/>.", "A B C.", {{0, 0}, {1, 1}}, {{2, 0}}), "<x/>A B C.");
  // At an end of the text a pair takes unaligned ones with it, elsewhere not.
  EXPECT_EQ(put("<b>a b.</b>", "The A B.", {{0, 1}, {1, 2}}), "<b>The A B.</b>");
  EXPECT_EQ(put("<b>a</b> b", "The A of B", {{0, 1}, {1, 3}}), "<b>The A</b> of B");
  EXPECT_EQ(put("q <b>a</b> b", "Q the A of B", {{0, 0}, {1, 2}, {2, 4}}), "Q the <b>A</b> of B");
  // Nothing at all: in the order of the source.
  EXPECT_EQ(put("a <b>b</b><x/> c", "A C", {{0, 0}, {2, 1}}), "A <b></b><x/>C");
  EXPECT_EQ(put("<b>a <i>b</i></b>", "", {}), "<b><i></i></b>");
  EXPECT_EQ(put("<b>a <i>b</i></b>", "X Y", {}), "X Y<b><i></i></b>");
  // A guess that is outside of the pair around it counts for nothing.
  EXPECT_EQ(put("<b>a <i>b</i></b> c", "A C", {{0, 0}, {2, 1}}, {{1, 1}}), "<b>A<i></i></b> C");
  EXPECT_EQ(put("<b>a <i>b</i></b> c", "A C", {{0, 0}, {2, 1}}, {{1, 0}}), "<b><i>A</i></b> C");
}

TEST(TagTransfer, EntitiesOfXmlComeOutOnceEach) {
  EXPECT_EQ(put("Tom &amp; Jerry", "Tom und Jerry", {{0, 0}, {1, 2}}), "Tom und &amp; Jerry");
  EXPECT_EQ(put("AT&amp;T x", "X AT&T", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}), "X AT&amp;T");
  EXPECT_EQ(put("AT&amp;T x", "X AT", {{0, 1}, {3, 0}}), "X AT&amp;");  // its character is lost
  EXPECT_EQ(put("&quot;a b&quot; c", "C A B", {{0, 1}, {1, 2}, {2, 0}}), "C &quot;A B&quot;");
  EXPECT_EQ(put("&quot;a&quot;!", "! A", {{0, 1}, {1, 0}}), "! &quot;A&quot;");
  EXPECT_EQ(put("10&#160;km", "10 km", kStraight), "10&#160;km");
  EXPECT_EQ(put("&unknown; a", "A", kStraight), "&unknown; A");
  EXPECT_EQ(put("caf&#233; \u00e9t\u00e9", "\u00e9t\u00e9 caf\u00e9", {{0, 1}, {1, 0}}),
            "&#233;t\u00e9 caf\u00e9");
}

TEST(TagTransfer, Html) {
  EXPECT_EQ(put_html("a &lt; b &amp; c", "A < B & C", kStraight), "A &lt; B &amp; C");
  EXPECT_EQ(put_html("it&#39;s", "es ist <so>", {{0, 0}}), "es ist &lt;so&gt;");
  EXPECT_EQ(put_html("a<br>b", "A\nB", kStraight), "A<br>B");
  EXPECT_EQ(put_html("<P>a</p>\n<p>b <img src=x> c</p>\n", "A\nC B", {{0, 0}, {1, 2}, {2, 1}}),
            "<P>A</p>\n<p><img src=x> C B</p>\n");
  EXPECT_EQ(put_html("use <code>ls &lt; x</code> now", "jetzt nutze", {{0, 1}, {1, 0}}),
            "<code>ls &lt; x</code> jetzt nutze");
  EXPECT_EQ(put_html("<ul><li>a<li>b</ul>", "A\nB", kStraight), "<ul><li>A<li>B</ul>");
  EXPECT_EQ(put_html("a<br>b c", "A\nC B", {{0, 0}, {1, 2}, {2, 1}}), "A<br>C B");  // at the border
  // A block of which nothing is left.
  EXPECT_EQ(put_html("<p>a</p><p>b</p> <br>", "A\n", {{0, 0}}), "<p>A</p><p></p> <br>");
  EXPECT_EQ(put_html("<p>a</p><p>b</p> <br>c", "\n\nC", {{2, 0}}), "<p></p><p></p> <br>C");
  EXPECT_EQ(put_html("<div><p>a</p><p>b</p></div>", "A\n", {{0, 0}}), "<div><p>A</p><p></p></div>");
  EXPECT_EQ(put_html("10&nbsp;km", "10 km", kStraight), "10&nbsp;km");
  EXPECT_EQ(put_html("  a\n  b  ", "A B", kStraight), "  A B  ");
  EXPECT_EQ(read_markup("a\n b<p>c", MarkupFormat::kHtml).text, "a b\nc");
}

// Random markup and alignments.
class Random {
 public:
  explicit Random(uint32_t seed, bool html = false)
      : engine_(seed), blocks_(html ? std::size(kBlocks) : 0) {}
  int below(int most) { return static_cast<int>(engine_() % static_cast<uint32_t>(most)); }

  // Nested pairs and lone tags around words, without white space of their own.
  void marked(std::string& text, int depth) {
    for (int parts = 1 + below(3); parts > 0; --parts) {
      const int kind = below(depth > 4 ? 2 : 4);
      if (kind == 0 || kind == 1) {
        text += concat(text.empty() || text.ends_with('>') ? "" : " ", "w", words_++);
        if (kind == 1 && below(2) == 0) text += concat("<x", names_++, "/>");
      } else {
        std::string name = concat(kind == 2 ? "b" : "i", names_++);
        if (blocks_ > 0 && below(3) > 0) name = kBlocks[--blocks_];
        if (!text.empty() && below(2) == 0) text += ' ';
        text += concat('<', name, '>');
        if (below(6) > 0) marked(text, depth + 1);
        text += concat("</", name, '>');
      }
    }
  }
  Pairs pairs(size_t sources, size_t targets, int most) {
    std::vector<AlignedText::Pair> all;
    if (sources == 0 || targets == 0) return all;
    for (int n = below(most + 1); n > 0; --n) {
      all.emplace_back(below(static_cast<int>(sources)), below(static_cast<int>(targets)));
    }
    return all;
  }

 private:
  static constexpr const char* kBlocks[] = {"p",  "div", "ul", "li", "ol", "h1", "h2", "table",
                                            "tr", "td",  "th", "dl", "dt", "dd", "nav"};
  std::mt19937 engine_;
  size_t blocks_;  // names that are left
  int words_ = 0, names_ = 0;
};

std::string without_tags(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') {
      i = text.find('>', i);
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<std::string> tags_of(const std::string& text) {
  std::vector<std::string> tags;
  for (size_t begin = 0; (begin = text.find('<', begin)) != std::string::npos; ++begin) {
    tags.push_back(text.substr(begin, text.find('>', begin) + 1 - begin));
  }
  return tags;
}

// The opening tags that are open at each tag, by the tag.
std::map<std::string, std::vector<std::string>> nesting_of(const std::string& text,
                                                           bool& well_formed) {
  std::map<std::string, std::vector<std::string>> around;
  std::vector<std::string> open;
  for (const std::string& tag : tags_of(text)) {
    if (tag[1] == '/') {
      const bool fits = !open.empty() && open.back() == "<" + tag.substr(2);
      well_formed = well_formed && fits;
      if (fits) open.pop_back();
    }
    around[tag] = open;
    if (tag[1] != '/' && tag[tag.size() - 2] != '/') open.push_back(tag);
  }
  well_formed = well_formed && open.empty();
  return around;
}

void expect_same_nesting(const std::string& source, const std::string& out) {
  bool well_formed = true;
  const auto there = nesting_of(source, well_formed), here = nesting_of(out, well_formed);
  ASSERT_TRUE(well_formed);
  for (const auto& [tag, around] : there) {
    for (const std::string& outer : around) {
      ASSERT_THAT(here.at(tag), testing::Contains(outer)) << tag;
    }
  }
}

TEST(TagTransfer, RandomMarkupIsKept) {
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    std::string source;
    random.marked(source, 0);
    const MarkedText marked = read_markup(source, MarkupFormat::kXml);
    AlignedText translation;
    for (int words = random.below(8), i = 0; i < words; ++i) {
      translation.text += concat(i > 0 && random.below(4) > 0 ? " " : i > 0 ? "," : "", "v", i);
    }
    translation.units = text_units(translation.text);
    const size_t targets = translation.units.size();
    translation.pairs = random.pairs(marked.units.size(), targets, 10);
    for (const auto& guess : random.pairs(marked.units.size(), targets, 10)) {
      const auto same = [&](const auto& pair) { return pair.first == guess.first; };
      if (std::ranges::none_of(translation.pairs, same)) translation.guesses.push_back(guess);
    }
    const std::string out = with_markup(marked, translation, as_it_is);
    const std::string where = concat("seed ", seed, ": ", source, " -> ", out);
    ASSERT_THAT(tags_of(out), testing::UnorderedElementsAreArray(tags_of(source))) << where;
    std::string plain = without_tags(out);
    if (!plain.empty() || !translation.text.empty()) {
      // Spaces that tags alone parted are theirs.
      std::erase(plain, ' ');
      std::string expected = translation.text;
      std::erase(expected, ' ');
      ASSERT_EQ(plain, expected) << where;
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_nesting(source, out)) << where;
    if (seed % 4 > 0) continue;
    for (const auto& [s, t] : translation.pairs) {  // what a pair enclosed it encloses
      const std::string word =
          marked.text.substr(marked.units[s].begin, marked.units[s].end - marked.units[s].begin);
      const TextUnit& unit = translation.units[t];
      const std::string ours = translation.text.substr(unit.begin, unit.end - unit.begin);
      if (!word.starts_with('w') || !ours.starts_with('v')) continue;
      for (const Tag& tag : marked.tags) {
        if (!tag.opens() || tag.unit > static_cast<size_t>(s) ||
            marked.tags[tag.partner].unit <= static_cast<size_t>(s)) {
          continue;
        }
        const size_t begin = out.find(tag.bytes), at = out.find(ours);
        ASSERT_TRUE(begin < at && at < out.find(marked.tags[tag.partner].bytes))
            << where << "\n"
            << tag.bytes << ' ' << ours;
      }
    }
  }
}

// Units of a block become units of the same block, or nothing.
TEST(TagTransfer, RandomBlocksAreKept) {
  int blocks = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Random random(seed, /*html=*/true);
    std::string source;
    random.marked(source, 0);
    const MarkedText marked = read_markup(source, MarkupFormat::kHtml);
    AlignedText translation;
    size_t first = 0;  // unit of the block
    for (size_t begin = 0; begin <= marked.text.size(); ++blocks) {
      const size_t end = std::min(marked.text.find('\n', begin), marked.text.size());
      const size_t last = unit_at(marked.units, end);
      AlignedText block;
      for (int words = random.below(5), i = 0; i < words; ++i)
        block.text += concat(i ? " v" : "v", i);
      block.units = text_units(block.text);
      for (auto* const pairs : {&block.pairs, &block.guesses}) {
        *pairs = random.pairs(last - first, block.units.size(), 4);
        for (auto& pair : *pairs) pair.first += static_cast<int32_t>(first);
      }
      translation.append(block, begin > 0 ? "\n" : "");
      begin = end + 1;
      first = last;
    }
    const std::string out = with_markup(marked, translation, as_it_is);
    const std::string where = concat("seed ", seed, ": ", source, " -> ", out);
    ASSERT_THAT(tags_of(out), testing::UnorderedElementsAreArray(tags_of(source))) << where;
    ASSERT_NO_FATAL_FAILURE(expect_same_nesting(source, out)) << where;
  }
  EXPECT_GT(blocks, 40000);
}

// Whatever stands in a text, nothing is lost and it ends soon.
TEST(ReadMarkup, RandomBytesAreKept) {
  std::mt19937 engine(7);
  const std::string alphabet = "<</>>&;#x1ab\"'= !-?\n]";
  for (const MarkupFormat format : {MarkupFormat::kXml, MarkupFormat::kHtml}) {
    for (int i = 0; i < 20000; ++i) {
      std::string source;
      for (uint32_t n = engine() % 30; n > 0; --n) source += alphabet[engine() % alphabet.size()];
      if (format == MarkupFormat::kXml) std::ranges::replace(source, '\n', ' ');
      const MarkedText marked = read_markup(source, format);
      AlignedText same{marked.text, marked.units};
      for (int32_t u = 0; u < std::ssize(marked.units); ++u) same.pairs.emplace_back(u, u);
      std::string out = with_markup(marked, same, as_it_is);
      if (format == MarkupFormat::kXml) {  // the same, but for the order of white space and tags
        std::ranges::sort(source), std::ranges::sort(out);
        ASSERT_EQ(out, source);
      } else {
        for (const Tag& tag : marked.tags) ASSERT_THAT(out, testing::HasSubstr(tag.bytes));
      }
    }
  }
  for (const char* const part : {"<a b=\"", "<!--", "<b>", "</b>", "<b></b>", "&amp;", "<b></i>",
                                 "<code>", "a<b>", "<p>a", "<a '", "&#1;", "a<b>a</i>"}) {
    std::string source;
    while (source.size() < 100000) source += part;
    for (const MarkupFormat format : {MarkupFormat::kXml, MarkupFormat::kHtml}) {
      const MarkedText marked = read_markup(source, format);
      AlignedText none{marked.text, marked.units};
      with_markup(marked, none, as_it_is);
    }
  }
}

}  // namespace
}  // namespace tapestry
