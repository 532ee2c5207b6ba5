// The facts of a corpus as bytes behind its table; private to data/corpora/.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpora/token_table.h"

namespace tapestry {

// Writes numbers, texts with their lengths, and lists with theirs.
struct FactsWriter {
  std::string bytes;
  static constexpr bool broken = false;

  void operator()(int64_t& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void operator()(std::string& text) {
    auto size = static_cast<int64_t>(text.size());
    (*this)(size);
    bytes += text;
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    auto size = static_cast<int64_t>(list.size());
    (*this)(size);
    for (T& value : list) (*this)(value);
  }
};

// Reads the output of FactsWriter. A checksum finds damage, but cannot tell who wrote the file: if
// something does not fit, reading stops and `broken` is set.
struct FactsReader {
  std::string_view rest;
  bool broken = false;

  void operator()(int64_t& value) {
    if (rest.size() < sizeof(value)) return give_up();
    std::memcpy(&value, rest.data(), sizeof(value));
    rest.remove_prefix(sizeof(value));
  }
  void operator()(std::string& text) {
    const size_t size = length(1);
    text.assign(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    list.resize(length(sizeof(int64_t)));  // of an element at least: its number, or its length
    for (T& value : list) (*this)(value);
  }

 private:
  void give_up() {
    broken = true;
    rest = {};
  }
  size_t length(size_t least_bytes) {
    int64_t size = 0;
    (*this)(size);
    const bool fits = size >= 0 && static_cast<uint64_t>(size) <= rest.size() / least_bytes;
    if (!fits) give_up();
    return fits ? static_cast<size_t>(size) : 0;
  }
};

template <class Visitor>
void visit(FilterCounts& counts, Visitor& visitor) {
  for (int64_t* const value :
       {&counts.read, &counts.kept, &counts.truncated, &counts.other_split}) {
    visitor(*value);
  }
  for (int64_t& value : counts.dropped) visitor(value);
  for (std::string& place : counts.first) visitor(place);
  for (UnknownTokens& side : counts.unknown) {
    visitor(side.tokens);
    visitor(side.unknown);
    visitor(side.first);
  }
  visitor(counts.corpus);
}

template <class Visitor>
void visit(CorpusFacts& facts, Visitor& visitor) {
  visit(facts.counts, visitor);
  auto corpora = static_cast<int64_t>(facts.counts.of_corpora.size());
  visitor(corpora);
  for (int64_t i = 0; i < corpora && !visitor.broken; ++i) {
    if (i == std::ssize(facts.counts.of_corpora)) facts.counts.of_corpora.emplace_back();
    visit(facts.counts.of_corpora[static_cast<size_t>(i)], visitor);
  }
  visitor(facts.parts);
  visitor(facts.numbers);
  visitor(facts.texts);
  visitor(facts.checksum);
}

}  // namespace tapestry
