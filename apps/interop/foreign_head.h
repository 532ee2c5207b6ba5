// What the head of a folder of theirs is for.
#pragma once

#include <string>

#include "apps/interop/foreign_folder.h"

namespace tapestry::interop {

/// The task of the class that the folder names, and of its problem_type: other classes use the same
/// names of tensors. Without a class the tensors decide. "" without a head; adds a reason for a
/// class that is unknown.
std::string task_of_head(const Folder& folder, Reasons& reasons);

/// The names of the classes, by id2label.
Json labels_of(const Json& theirs, Reasons& reasons);
/// Adds a reason if a classifier that is one by its task has another problem_type, or one label.
void check_classes(const Json& theirs, const Json& labels, Reasons& reasons);

}  // namespace tapestry::interop
