// Auctions of leased GPUs, as in `policies/themis.py` and `policies/fairness.py`: whole numbers, the same answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "index.hpp"
#include "leases.hpp"
#include "partition.hpp"
#include "policy.hpp"
#include "walk.hpp"

namespace trimtab {

// How many times longer a job may take than alone on all it asked for; see `Crowding` in `policies/fairness.py`.
struct Crowding {
    Wide over;
    Wide under;

    static Crowding of(Ms age_ms, std::int64_t job_ms, std::int32_t gpus, std::int32_t vc_gpus, bool paper);
};

// log2(numerator / denominator) in units of 2**-40, rounded down; see `log2_units` in `policies/fairness.py`.
std::int64_t log2_units(std::int64_t numerator, std::int64_t denominator);

// One auction after another; the object is kept for the memory it holds, not for what is in it.
class Themis {
public:
    // Decide one pass. Leases that stand otherwise than their jobs say are put right at once; the verdict has the rest.
    void run(const Scene& scene, Partition& part, Verdict& verdict);

    // When the auction is held that somebody has asked for, NONE if it was held or nobody has.
    static Ms next_review_ms(const Scene& scene, const Partition& part);

private:
    struct Bid {
        std::int64_t rho_ppm;
        Ms time_ms;
        JobId id;
        std::int32_t gpus;
        std::int32_t member_gpus;
    };

    // The waiting bids of one width, the first one last, and about what its first one would gain.
    struct Width {
        std::int32_t member_gpus;
        double gain;
        std::vector<Bid> bids;
    };

    using Ids = std::vector<JobId>;

    void settle_leases();
    void stand(Job& job) const;
    void offer(const Layer& free);
    bool serves_anyone() const;
    void bid();
    Bid bid_of(const Job& job, std::int64_t speed_ppm) const;
    std::int64_t speed_of(const Job& job);
    std::int64_t rho_ppm(const Job& job, Ms time_ms, Ms run_ms) const;
    void order();
    void order_by_gain();
    void look(Width& width) const;
    bool is_before(const Width& one, const Width& two) const;
    void walk(std::size_t count, JobId absent, Verdict& found, std::vector<char>& won);
    bool place(const Job& job, Nodes& found);
    void grant(Verdict& verdict);
    void suppose(JobId absent, std::vector<char>& won);
    std::int64_t share_of(std::size_t own_place);

    const AuctionRules& rules() const { return *scene_->plan.auction; }

    const Scene* scene_ = nullptr;
    Partition* part_ = nullptr;
    std::vector<Bid> bids_;    // in the order in which they are served
    std::size_t visible_ = 0;  // so many of them were asked first
    std::vector<Width> widths_;
    std::vector<std::pair<std::int32_t, bool>> consolidated_;  // widths that have been looked at
    Layer offered_, lifted_, really_free_;
    std::int32_t failed_alone_ = 0, failed_spread_ = 0;  // smallest width that failed
    Ids kept_;  // of a walk: those who keep their GPUs
    std::vector<char> won_, won_alone_;  // by bid: who wins, and who would without one of the visible
    Verdict what_if_;
};

}  // namespace trimtab
