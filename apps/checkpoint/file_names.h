// The files of a checkpoint, by name. Tokenizers name their own (data/tokenizers/tokenizer.h).
#pragma once

namespace tapestry {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
/// What the task keeps (TrainingTask::kept()); only if it does.
inline constexpr const char* kTaskFile = "task.safetensors";
inline constexpr const char* kTrainerStateFile = "trainer_state.json";
/// Describes what happened; only in the weights of an update that went wrong.
inline constexpr const char* kIncidentFile = "incident.txt";
/// Beginning of the names of their folders in a run folder.
inline constexpr const char* kIncidentPrefix = "incident-";
/// The points that a regression answers from (data/examples/points.h); only in its checkpoints.
inline constexpr const char* kPointsFile = "points.csv";
/// Trials and their results; only in the folder of a sweep, which no run may have.
inline constexpr const char* kSweepFile = "sweep.json";
/// The checkpoints of a mean; only in means of checkpoints.
inline constexpr const char* kAverageFile = "average.json";

}  // namespace tapestry
