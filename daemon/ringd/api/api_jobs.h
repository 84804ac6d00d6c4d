/* SPDX-License-Identifier: MIT
 *
 * The API's routes about jobs. Loop thread. */
#ifndef DAEMON_API_JOBS_H
#define DAEMON_API_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct http_call;
struct api;
struct loan;

void api_get_jobs(struct api *api, struct http_call *call);
void api_post_job(struct api *api, struct http_call *call);
void api_get_schedules(struct api *api, struct http_call *call);
void api_post_loan(struct api *api, struct http_call *call);
void api_post_plan(struct api *api, struct http_call *call);
void api_get_job(struct api *api, struct http_call *call);
void api_delete_job(struct api *api, struct http_call *call);
void api_post_pause(struct api *api, struct http_call *call);
void api_post_continue(struct api *api, struct http_call *call);
void api_post_job_loan(struct api *api, struct http_call *call);
void api_post_turn(struct api *api, struct http_call *call);
void api_get_job_log(struct api *api, struct http_call *call);
void api_get_job_steps(struct api *api, struct http_call *call);
void api_get_job_evaluations(struct api *api, struct http_call *call);
void api_get_job_samples(struct api *api, struct http_call *call);
void api_get_job_timeline(struct api *api, struct http_call *call);
void api_get_job_timelines(struct api *api, struct http_call *call);
void api_get_job_events(struct api *api, struct http_call *call);
/* The number in /v1/jobs/{id}…; false when there is none, which has been answered. */
bool api_read_job(struct http_call *call, uint64_t *ret);
/* What the request was lent ("loan"), held, or NULL; false: it is gone, which has been answered. */
bool api_read_loan(struct api *api, struct http_call *call, const json_t *request, struct loan **ret);
/* 404: no such job here; names those of other heads that have the number. */
void api_fail_unknown_job(struct api *api, struct http_call *call, uint64_t id);

#endif
