/* SPDX-License-Identifier: MIT
 *
 * The API's routes about jobs. Loop thread. */
#ifndef DAEMON_API_JOBS_H
#define DAEMON_API_JOBS_H

struct http_call;
struct node;

void api_get_jobs(struct node *n, struct http_call *call);
void api_post_job(struct node *n, struct http_call *call);
void api_get_schedules(struct node *n, struct http_call *call);
void api_post_plan(struct node *n, struct http_call *call);
void api_get_job(struct node *n, struct http_call *call);
void api_delete_job(struct node *n, struct http_call *call);
void api_post_turn(struct node *n, struct http_call *call);
void api_get_job_log(struct node *n, struct http_call *call);
void api_get_job_steps(struct node *n, struct http_call *call);
void api_get_job_evaluations(struct node *n, struct http_call *call);
void api_get_job_samples(struct node *n, struct http_call *call);
void api_get_job_timeline(struct node *n, struct http_call *call);
void api_get_job_timelines(struct node *n, struct http_call *call);
void api_get_job_events(struct node *n, struct http_call *call);

#endif
