# To be sourced: keep_awake asks the kernel not to let idle cores sleep, until the shell that asked and its children end (PM QoS, as the
# profile latency-performance of tuned does). A core that sleeps while others compute is, in a virtual machine, lent to somebody else:
# what sleeps or is throttled for some milliseconds was seen to come back after 1 to 180. No thread loses anything to it.
# SPDX-License-Identifier: MIT
keep_awake() {
    if [ -w /dev/cpu_dma_latency ]; then
        exec 9>/dev/cpu_dma_latency
        printf '\0\0\0\0' >&9
    else
        echo "NOTE     idle cores may sleep, and what waits comes back late: root can keep them awake (/dev/cpu_dma_latency)"
    fi
}
