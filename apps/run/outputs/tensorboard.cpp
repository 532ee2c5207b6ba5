#include "apps/run/outputs/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>

#include "apps/config/tree.h"
#include "core/base/error.h"
#include "data/files/little_endian.h"

namespace tapestry {
namespace {

// Fields of the messages, by TensorBoard's names.
namespace event_field {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}  // namespace event_field
namespace value_field {
constexpr uint32_t kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}  // namespace value_field
constexpr uint32_t kSummaryValue = 1;
constexpr int64_t kSessionStarts = 1, kSessionSucceeded = 1;
constexpr int64_t kFloatTensor = 1, kStringTensor = 7, kTensorData = 2;
enum class HparamType : int64_t { kString = 1, kBool = 2, kNumber = 3 };

double now() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

// A name that no file has: time, machine, process, and a number.
std::string new_path(const std::string& folder) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  for (int i = 0;; ++i) {
    std::string path = fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}", folder,
                                   static_cast<int64_t>(now()), host, getpid(), i);
    if (!std::filesystem::exists(path)) return path;
  }
}

bool has_event_files(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return true;
  }
  return false;
}

ProtobufWriter shape_of(int64_t size) {
  return ProtobufWriter().message(2, ProtobufWriter().integer(1, size));
}

ProtobufWriter metadata(const char* plugin, std::string_view content) {
  const ProtobufWriter data = ProtobufWriter().bytes(1, plugin).bytes(2, content);
  return ProtobufWriter().message(1, data).integer(4, kTensorData);
}

// A page of the plugin "text", in Markdown.
ProtobufWriter text_value(const char* tag, std::string_view markdown) {
  const ProtobufWriter tensor =
      ProtobufWriter().integer(1, kStringTensor).message(2, shape_of(1)).bytes(8, markdown);
  return ProtobufWriter()
      .bytes(value_field::kTag, tag)
      .message(value_field::kTensor, tensor)
      .message(value_field::kMetadata, metadata("text", ""));
}

// The plugin "hparams" reads the metadata; the tensor is empty.
ProtobufWriter hparams_value(const char* tag, uint32_t field, const ProtobufWriter& content) {
  const ProtobufWriter tensor = ProtobufWriter().integer(1, kFloatTensor).message(2, shape_of(0));
  const ProtobufWriter data = ProtobufWriter().message(field, content);
  return ProtobufWriter()
      .bytes(value_field::kTag, tag)
      .message(value_field::kTensor, tensor)
      .message(value_field::kMetadata, metadata("hparams", data.text()));
}

struct Hparam {
  HparamType type;
  ProtobufWriter value;
};

Hparam hparam_of(const std::string& text) {
  if (text == "true" || text == "false") {
    return {HparamType::kBool, ProtobufWriter().integer(4, text == "true")};
  }
  if (double number = 0; parse_yaml_double(text, number)) {
    return {HparamType::kNumber, ProtobufWriter().real(2, number)};
  }
  return {HparamType::kString, ProtobufWriter().bytes(3, text)};
}

uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  constexpr uint32_t kPolynomial = 0x82f63b78;
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
      table[i] = crc;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

TensorBoard::TensorBoard(const ReportedRun& run)
    : first_(!has_event_files(run.folder)), file_(new_path(run.folder)) {
  event(0, event_field::kFileVersion, "brain.Event:2");
  // Purges these steps in TensorBoard: a resumed run writes them again.
  event(run.resumed_step + 1, event_field::kSessionLog,
        ProtobufWriter().integer(1, kSessionStarts).text());
  if (first_) describe(run);
}

void TensorBoard::describe(const ReportedRun& run) {
  std::string table = "| key | value |\n|---|---|\n";
  ProtobufWriter experiment, session;
  for (const auto& [key, text] : run.keys) {
    table += concat("| ", key, " | `", text, "` |\n");
    const Hparam hparam = hparam_of(text);
    experiment.message(
        4, ProtobufWriter().bytes(1, key).integer(4, static_cast<int64_t>(hparam.type)));
    session.message(1, ProtobufWriter().bytes(1, key).message(2, hparam.value));
  }
  for (const std::string& tag : {std::string("train/loss"), "valid/" + run.metric}) {
    const ProtobufWriter name = ProtobufWriter().bytes(2, tag);
    experiment.message(5, ProtobufWriter().message(1, name));
  }
  session.real(5, now());
  ProtobufWriter summary;
  summary.message(kSummaryValue, text_value("config", table));
  summary.message(kSummaryValue, hparams_value("_hparams_/experiment", 2, experiment));
  summary.message(kSummaryValue, hparams_value("_hparams_/session_start_info", 3, session));
  event(0, event_field::kSummary, summary.text());
}

void TensorBoard::metrics(int64_t step, const std::string& kind, const MetricValues& values) {
  ProtobufWriter summary;
  for (const auto& [name, value] : values) {
    summary.message(kSummaryValue,
                    ProtobufWriter()
                        .bytes(value_field::kTag, concat(kind, '/', name))
                        .single(value_field::kSimpleValue, static_cast<float>(value)));
  }
  event(step, event_field::kSummary, summary.text());
}

void TensorBoard::finish() {
  const ProtobufWriter end = ProtobufWriter().integer(1, kSessionSucceeded).real(2, now());
  ProtobufWriter summary;
  summary.message(kSummaryValue, hparams_value("_hparams_/session_end_info", 4, end));
  event(0, event_field::kSummary, summary.text());
}

void TensorBoard::event(int64_t step, uint32_t field, std::string_view content) {
  ProtobufWriter event;
  event.real(event_field::kWallTime, now());
  if (step != 0) event.integer(event_field::kStep, step);
  record(event.bytes(field, content).text());
}

// A reader waits for the rest of a torn record, and never sees half of a flushed one.
void TensorBoard::record(std::string_view bytes) {
  std::string length;
  append_little_endian(length, uint64_t{bytes.size()});
  std::string out = length;
  append_little_endian(out, masked(crc32c(length)));
  out += bytes;
  append_little_endian(out, masked(crc32c(bytes)));
  file_.append(out);
}

}  // namespace tapestry
