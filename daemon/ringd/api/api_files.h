/* SPDX-License-Identifier: MIT
 *
 * The API's routes about results that lie with the daemon, for those who fetch them. Loop
 * thread. */
#ifndef DAEMON_API_FILES_H
#define DAEMON_API_FILES_H

struct http_call;
struct api;

void api_get_job_files(struct api *api, struct http_call *call);
void api_get_job_file(struct api *api, struct http_call *call);

#endif
