/* SPDX-License-Identifier: MIT
 *
 * Planning, the part about replicas of the pipeline: how many there are, which share of a step's
 * microbatches each gets, in how many groups and parts gradients are added up. Called by head_split
 * and the search, in the stage process of rank 0. */
#ifndef DAEMON_STAGE_REPLICAS_H
#define DAEMON_STAGE_REPLICAS_H

#include "daemon/stage/plan/stage_head.h"

/* From --parallel and the nodes there are: plan.replicas, and how many ranks the job takes
 * (ret_ranks, at most plan.ranks). `lines`: ranks of a schedule of the user's, or 0. */
int replicas_of_job(struct head *h, size_t lines, size_t *ret_ranks, struct err *err);
/* The same where nodes share stages: plan.slices too, and that the model can be shared so. */
int slices_of_job(struct head *h, size_t lines, size_t *ret_ranks, struct err *err);
/* How many nodes may share a stage of a job that trains, at most; 1: none may. */
size_t slices_most(const struct head *h);
/* What the ranks of a stage gather of a unit for so many rows: how often, and bytes that come to
 * one of them. */
struct slice_traffic {
    double times, bytes;
};
struct slice_traffic slices_traffic(const struct job_plan *plan, const struct config *config, size_t unit,
                                    double rows);
/* The same of a job that trains, forward and back; and of what is trained, once a step. */
struct slice_trains {
    struct slice_traffic forward, input, weights, update;
};
struct slice_trains slices_trains(const struct job_plan *plan, const struct config *config, size_t unit,
                                  double rows);
/* From the microbatches of a step and the speed of the nodes: plan.groups, and plan.share, unless a
 * search has dealt them out. */
int replicas_share_out(struct head *h, struct err *err);
/* In how many groups the gradients of m microbatches are added up. */
size_t replicas_groups(const struct head *h, size_t m);
/* Bytes of a unit's gradients that a step of so many tokens sends from a replica's slice to
 * another: without rows of the embedding that no token has, and those that other slices make.
 * Experts are taken to have all been chosen. */
double replicas_unit_bytes_sent(const struct job_plan *plan, const struct config *config, size_t unit,
                                double tokens);
/* The replica with the largest share. */
size_t replicas_largest(const struct job_plan *plan);
/* Bytes that a unit takes on a stage of the replica with the largest share. */
int replicas_unit_bytes(size_t *ret, const struct head *h, size_t unit, struct err *err);
/* From the split: in how many parts the gradients of a stage travel, as plan.parts has it. */
size_t replicas_parts(const struct job_plan *plan, const struct config *config, size_t stage);
/* Of a split (stages + 1 entries): bytes of gradients that each rank of a stage sends in a step, of
 * the replica that sends most, counted as those of a unit are. */
double replicas_sent_bytes(const struct head *h, const size_t *first, size_t stages, size_t stage);
/* Likewise: bytes of moments that each rank of a stage does not hold, at least. */
double replicas_spared_bytes(const struct head *h, const size_t *first, size_t stages, size_t stage);
/* Most bytes of a part that travels, of any stage; 0: none does. */
size_t replicas_part_bytes(const struct job_plan *plan);

#endif
