/* SPDX-License-Identifier: MIT
 *
 * All nodes of a job compute with the same weights, or none does: the head reads what the model's
 * tensors hold, and every other rank what those of its layers hold, each once for a file as it
 * stands (engine/file/weights.h). Called in the stage process before the job runs; on its main
 * thread. While it reads, it sends the event "reading". */
#ifndef DAEMON_STAGE_WEIGHTS_H
#define DAEMON_STAGE_WEIGHTS_H

#include "daemon/stage/plan/stage_head.h"
#include "engine/model/quant/requant.h"

/* Of the head, once its plan stands: fills in h->plan.weights where others take part, unless
 * h->plan.content says what these files hold. Refuses files
 * whose output head is not the embedding that config.json ties it to. */
int weights_of_head(struct head *h, struct err *err);

/* Of another rank: refuses, by name, what is not the head's. `tell`: where events go. */
int weights_of_rank(struct stage_events *tell, const struct job_plan *plan, const struct config *config,
                    uint32_t rank, struct err *err);

/* Of a rank that has embedding and head, where `content` stands for all that is compared: refuses
 * files whose output head is not the embedding that config.json ties it to. */
int weights_check_tied_here(const struct job_plan *plan, const struct config *config, uint32_t rank,
                            struct err *err);

/* Says what --weights 4 or 8 bits took of the folder `dir`, over all stages of a rank. */
void weights_tell_quantized(struct stage_events *tell, uint32_t rank, size_t bits, const char *dir,
                            const struct requant_told *sum);

/* For the doctor: reads all of a model again, whatever is known of it; what model_facts says. */
json_t *weights_of_dir(struct stage_events *tell, const char *dir);

#endif
