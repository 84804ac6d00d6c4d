/* SPDX-License-Identifier: MIT
 *
 * TensorBoard's event files. A file is a row of records as TensorFlow's TFRecord
 * (tensorflow/core/lib/io/record_writer.h): the length in 8 bytes, little-endian; its masked
 * CRC-32C in 4; the bytes; their masked CRC-32C. Each record is an Event
 * (tensorflow/core/util/event.proto) in the wire format of Protocol Buffers: wall_time = 1,
 * step = 2, file_version = 3, summary = 5. Of a Summary it uses value = 1, of that tag = 1 and
 * simple_value = 2. Pure but for the file. */
#ifndef DAEMON_CTL_EVENT_FILE_H
#define DAEMON_CTL_EVENT_FILE_H

#include <stdint.h>
#include <stdio.h>

struct event_scalar {
    const char *tag; /* shorter than EVENT_TAG */
    float value;
};
enum { EVENT_TAG = 64, EVENT_SCALARS = 8 };

/* The record that a file begins with. Times are seconds since 1970. */
void event_file_begin(FILE *to, double time);
/* One record of at most EVENT_SCALARS values. What fails is seen with ferror. */
void event_file_add(FILE *to, double time, uint64_t step, const struct event_scalar *scalars, size_t n);

/* CRC-32C (Castagnoli; RFC 3720, appendix B.4). */
uint32_t event_file_crc(const uint8_t *bytes, size_t n);

#endif
