# SPDX-License-Identifier: MIT
#
# A hub with one model, test/tiny, of which system/lib/hub.c is the program: $hub is its folder, $model the model's exact name.
# Sourced behind check.sh and ring.sh. $hub_from: the folder of its files, if it is another than that of the tiny Llama.
# shellcheck shell=sh disable=SC2034,SC2154

hub=$work/hub
mkdir -p "$hub/files" "$work/home"
for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
    cp "${hub_from:-share/tiny-llama}/$file" "$hub/files/"
done
echo 'a pickle' >"$hub/files/pytorch_model.bin"
weights=$(wc -c <"$hub/files/model.safetensors")
commit=0123456789abcdef0123456789abcdef01234567
model=test/tiny@$commit
# git_of FILE: the hash that git has of it
git_of() { { printf 'blob %s\0' "$(wc -c <"$1")" && cat "$1"; } | sha1sum | cut -d ' ' -f 1; }
{
    printf '{"sha":"%s","siblings":[{"rfilename":"original/model.safetensors","size":5},{"rfilename":"pytorch_model.bin","size":9}' $commit
    for file in config.json generation_config.json tokenizer.json tokenizer_config.json; do
        printf ',{"rfilename":"%s","size":%s,"blobId":"%s"}' $file "$(wc -c <"$hub/files/$file")" "$(git_of "$hub/files/$file")"
    done
    printf ',{"rfilename":"model.safetensors","size":%s,"blobId":"%s","lfs":{"sha256":"%s","size":%s,"pointerSize":134}}]}' \
        "$weights" $commit "$(sha256sum <"$hub/files/model.safetensors" | cut -d ' ' -f 1)" "$weights"
} >"$hub/listing"
# start_hub: it answers from now on, at HF_ENDPOINT, the second time at the same; its requests are lines of $work/requests
start_hub() {
    touch "$work/requests"
    # shellcheck disable=SC2046
    set -- "$(next_line "$work/requests")" $(head -n 1 "$work/requests")
    hub_from_line=$1
    shift
    "$build/tests/system/lib/hub" "$hub" "$@" >>"$work/requests" &
    hub_pid=$!
    await_line "$work/requests" '^[0-9]+ [0-9]+$' 10 "$hub_from_line"
    HF_ENDPOINT=http://127.0.0.1:$(head -n 1 "$work/requests" | cut -d ' ' -f 1)
    HF_TOKEN=hf_secret
    HF_HOME=$work/home
    export HF_ENDPOINT HF_TOKEN HF_HOME
}
at_end() {
    kill $hub_pid 2>/dev/null
    kill_ring
}

# weights_sent [FROM]: bytes of weights that have left the hub, by its lines from that one on
weights_sent() { tail -n "+${1:-1}" "$work/requests" | awk '$1 == "cdn" { sum += $5 } END { print sum + 0 }'; }
# sent_once FROM BLOCK: no byte of weights came twice, but for those in flight when it broke off
sent_once() {
    sent=$(weights_sent "$1")
    [ "$sent" -ge "$weights" ] && [ "$sent" -lt $((weights + $2)) ] || fail "$sent bytes of weights for $weights"
}
