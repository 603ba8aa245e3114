// What the engine does for policies that decide a whole pass; see `simulate/sharing.py`.
#include <algorithm>
#include <utility>

#include "engine.hpp"

namespace trimtab {

LucidScene Engine::lucid_scene() const {
    return {jobs_, *plan_.lucid, environment_.pairing.get(), environment_.pace.get(), now_ms_, environment_.relaxed};
}

// Lucid's own pass, and when it wants another one.
void Engine::bind(Partition& part) {
    Verdict verdict = part.lucid.pass(lucid_scene());
    const bool is_idle = verdict.is_empty && part.running.empty();
    carry_out(part, verdict);
    idle_passes_ = is_idle ? idle_passes_ + 1 : 0;
    part.review_ms = part.lucid.next_review_ms(lucid_scene());
}

// The GPUs of a job that runs, or is about to.
Nodes Engine::nodes_of(const Verdict& verdict, JobId id) const {
    const auto is_it = [id](const auto& place) { return place.first == id; };
    const auto found = std::find_if(verdict.places.begin(), verdict.places.end(), is_it);
    return found == verdict.places.end() ? job(id).nodes : found->second;
}

// Enter checked decisions in the index, and do what they say.
void Engine::carry_out(Partition& part, Verdict& verdict) {
    for (Verdict::Note& note : verdict.notes) {
        Care& care = cares_[static_cast<std::size_t>(note.id)];
        care.note.swap(note.note);
        care.promise_ms = note.promise_ms;
    }
    if (verdict.memory) part.memory.swap(*verdict.memory);
    for (const auto& [id, share] : verdict.resizes) resize(part, at(id), share);
    for (const JobId id : verdict.lost) give_back(part, at(id));
    for (const auto& [id, until_ms, beside] : verdict.terms) at(id).partner = beside;
    for (auto& [id, nodes] : verdict.places) {
        const JobId host = at(id).partner;
        if (host < 0) {
            part.index.add(0, part.levels, nodes, -1);
        } else if (nodes.empty()) {
            nodes = nodes_of(verdict, host);
        }
    }
    walk_.lost.swap(verdict.lost);
    walk_.places.swap(verdict.places);
    if (!cares_.empty()) {
        for (const auto& place : walk_.places) cares_[static_cast<std::size_t>(place.first)].share = {};
        for (const auto& [id, share] : verdict.shares) cares_[static_cast<std::size_t>(id)].share = share;
    }
    commit(part);
    for (const auto& [id, until_ms, beside] : verdict.terms) {
        if (beside >= 0) pair(at(id), at(beside));
        at(id).until_ms = until_ms;
        if (until_ms != NONE) schedule(at(id));
    }
    for (const Grant& grant : verdict.grants) {
        at(grant.job).lease(grant.start_ms, grant.end_ms, grant.renewal_ms);
        if (plan_.auction) part.desk.lease(at(grant.job));
    }
}

// Give a running job other CPU and memory; it pays for the change by standing still for a while.
void Engine::resize(Partition& part, Job& job, Allotment share) {
    Care& care = cares_[static_cast<std::size_t>(job.id)];
    job.settle(now_ms_);
    care.share = share;
    care.resized_ms = now_ms_;
    ++care.resizes;
    job.overhead_ms += environment_.adjust_ms;
    job.speed_ppm = speed_ppm(part, job);
    note_nodes(EventKind::resize, job);
    note_given(part, job);
    schedule(job);
}

// Tell the CPU and memory of a job with the latest entry of the log.
void Engine::note_given(const Partition& part, const Job& job) {
    if (!log_.kept) return;
    const Allotment told = care(job.id).share;
    const Allotment share = told.is_told() ? told : part.vc.proportional(job.gpus);
    log_.given.push_back({static_cast<std::int64_t>(log_.entries.size()) - 1, share});
}

// Let a job that has just started and its partner run at the speeds of a pair.
void Engine::pair(Job& job, Job& other) {
    other.settle(now_ms_);
    other.partner = job.id;
    if (environment_.pairing) {
        const Pairing& pairing = *environment_.pairing;
        const std::size_t speeds = pairing.at(pairing.kind_of(job.id), pairing.kind_of(other.id));
        job.speed_ppm = pairing.newcomers_ppm[speeds];
        other.speed_ppm = pairing.partners_ppm[speeds];
    }
    schedule(job);
    schedule(other);
}

// Give a job's GPUs back to the index; shared ones stay with its partner, which runs alone again.
void Engine::give_back(Partition& part, Job& job) {
    if (job.partner < 0) {
        part.index.add(part.top(job), part.levels, job.nodes, 1);
        if (plan_.lucid) part.lucid.leave(job, width_of(job));
        return;
    }
    Job& other = at(job.partner);
    job.partner = other.partner = -1;
    other.settle(now_ms_);
    other.speed_ppm = FULL_SPEED_PPM;
    schedule(other);
    if (plan_.lucid) part.lucid.stay_alone(other, width_of(other), kind_of(other));
}

// Take a job off its GPUs at the end of its time there; what it did is lost.
void Engine::expire(Job& job) {
    Partition& part = home_of(job);
    give_back(part, job);
    stop(part, job);
    job.done = 0;
    job.overhead_ms = environment_.cold_start_ms;
    enqueue(job);
}

}  // namespace trimtab
