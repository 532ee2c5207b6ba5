#include "data/corpora/records/table_reader.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/utf8.h"

namespace tapestry {

RecordReader::Row TableReader::next(RecordValues& values) {
  if (!started_) start();
  if (pending_) {
    pending_ = false;
  } else if (!read_row()) {
    reason_.clear();
    return counted(Row::kEnd);
  }
  if (!reason_.empty()) {
    return counted(Row::kOdd, [this] { return concat("[data] ", place_, ": ", reason_, '.'); });
  }
  return counted(row_of(values));
}

RecordReader::Row TableReader::row_of(RecordValues& values) {
  if (columns_ == 1 && is_blank(cells_[0])) return Row::kBlank;
  if (is_rectangular_ && columns_ > first_columns_) return Row::kLong;
  values.texts.resize(fields_.size());
  values.present.resize(fields_.size());
  for (size_t i = 0; i < fields_.size(); ++i) {
    const int64_t at = places_[i];
    const bool there = at >= 0 && at < columns_;
    if (!there && !fields_[i].optional) return Row::kShort;
    std::string& text = values.texts[i];
    if (there) {
      text = cells_[static_cast<size_t>(at)];
    } else {
      text.clear();
    }
    // An empty cell of a table means that there is no value.
    values.present[i] = there && !(fields_[i].optional && text.empty()) ? 1 : 0;
  }
  return Row::kWhole;
}

void TableReader::start() {
  started_ = true;
  const bool named = std::any_of(fields_.begin(), fields_.end(), [](const RecordField& field) {
    return field.needs_column() && !is_column_number(field.name);
  });
  const bool header =
      file_.header == "yes" || (file_.header == "auto" && (named || !file_.format->by_numbers));
  pending_ = read_row();
  // An unreadable header gives no names.
  if (!reason_.empty()) fail(ErrorKind::kData, "[data] ", place_, ": ", reason_, '.');
  first_columns_ = columns_;
  if (!pending_) return;
  for (int64_t i = 0; header && i < columns_; ++i) {
    names_.emplace_back(strip(cells_[static_cast<size_t>(i)]));
  }
  pending_ = !header;
  for (const RecordField& field : fields_) {
    places_.push_back(place_of(field));
    last_wanted_ = std::max(last_wanted_, places_.back());
  }
}

int64_t TableReader::place_of(const RecordField& field) const {
  const auto found = std::find(names_.begin(), names_.end(), field.name);
  if (found != names_.end()) {
    const auto again = std::find(found + 1, names_.end(), field.name);
    if (again != names_.end()) {
      fail(ErrorKind::kData, "[data] ", place_, " names the column '", field.name,
           "' twice: columns ", found - names_.begin() + 1, " and ", again - names_.begin() + 1,
           '.');
    }
    return found - names_.begin();
  }
  if (is_column_number(field.name)) return std::stoll(field.name) - 1;
  if (!field.needs_column()) return -1;
  fail_missing(place_, "column", names_, field.name, advice_on_line(line_, 1, *file_.format));
}

}  // namespace tapestry
