// Between the emulated threads of a block (emulation.cpp) and what runs beside them (async.cpp).
#pragma once

namespace cuda_emulation {

/// The running thread's number in its block.
int thread();
/// Lets others run, in a loop that waits. Who got what it waited for says so by note_progress():
/// where nobody does, the threads wait for each other.
void give_way();
void note_progress();
/// bar.sync and bar.arrive.
void group_barrier(int number, int members, bool waits);

/// A block begins; it has ended. A thread has ended.
void start_async();
void finish_async();
void end_of_thread();
/// A bit for each warpgroup that has no turn this time, so that the warpgroups of a block do not
/// keep step where nothing makes them.
unsigned late_warpgroups();
/// Between any two threads' turns: may deliver a copy. Delivers one if there is one.
void deliver_perhaps();
bool deliver_one();

}  // namespace cuda_emulation
