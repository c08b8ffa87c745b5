use super::*;

fn noted(import: &Import, what: &str) -> String {
    let mut notes = import.notes.iter();
    let note = notes.find(|note| note.what == what);
    note.unwrap_or_else(|| panic!("{what} in {:?}", import.notes))
        .why
        .clone()
}

/// A precise configuration with the weights of llm-d's older guide.
#[test]
fn a_precise_profile_of_weighted_scorers() {
    let import = import(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: single-profile-handler
- type: decode-filter
- type: precise-prefix-cache-scorer
  parameters:
    tokenProcessorConfig: {blockSize: 64}
    indexerConfig: {kvBlockIndexConfig: {enableMetrics: true}}
- type: queue-scorer
- type: kv-cache-utilization-scorer
- name: cold
  type: no-hit-lru-scorer
  parameters: {lruSize: 2048}
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: precise-prefix-cache-scorer, weight: 3.0}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: cold, weight: 2}
  - {pluginRef: max-score-picker}
",
    )
    .unwrap();
    assert_eq!(
        import.policy,
        "policy:
  profiles:
    - name: \"default\"
      scorers:
        - {type: prefix-cache, weight: 3}
        - {type: queue, weight: 2}
        - {type: kv-cache-utilization, weight: 2}
        - {type: no-hit-lru, weight: 2}
      picker: max-score
"
    );
    assert!(noted(&import, "decode-filter").contains("roles"));
    assert!(noted(&import, "no-hit-lru-scorer: lruSize").contains("remembered"));
}

/// Wide expert parallelism with disaggregation: affinity, token load, active requests.
#[test]
fn a_disaggregated_configuration_keeps_its_profiles() {
    let import = import(
        "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: token-producer, parameters: {modelName: m, vllm: {url: \"http://render:8000\"}}}
- {type: endpoint-notification-source}
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {blockSizeTokens: 64}
    indexerConfig:
      kvBlockIndexConfig: {inMemoryConfig: {podCacheSize: 128}}
      kvCacheBackendConfigs: [{name: gpu, weight: 1.0}, {name: cpu, weight: 0.4}]
    kvEventsConfig: {topicFilter: \"kv@\", discoverPods: true, podDiscoveryConfig: {socketPort: 5557}}
- {type: inflight-load-producer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: prefix-cache-affinity-filter, parameters: {peakPrefillThroughput: 3585, affinityThreshold: 0.9}}
- {type: token-load-scorer}
- {type: active-request-scorer}
- {type: prefill-filter}
- {type: decode-filter}
- {type: max-score-picker}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-affinity-filter}, {pluginRef: token-load-scorer}, {pluginRef: max-score-picker}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer}, {pluginRef: max-score-picker}]
dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
",
    )
    .unwrap();
    assert_eq!(
        import.policy,
        "policy:
  profiles:
    - name: \"prefill\"
      filters:
        - {type: prefix-cache-affinity, parameters: {\"affinityThreshold\":0.9}, required: true}
      scorers:
        - {type: token-load, weight: 1}
      picker: max-score
    - name: \"decode\"
      scorers:
        - {type: active-request, weight: 1}
      picker: max-score
"
    );
    assert!(noted(&import, "kvCacheBackendConfigs").contains("fetch_us_per_token"));
    assert!(
        noted(
            &import,
            "prefix-cache-affinity-filter: peakPrefillThroughput"
        )
        .contains("prefill_tokens_per_s")
    );
    assert!(noted(&import, "always-disagg-pd-decider").contains("pairs"));
    assert!(noted(&import, "dataLayer").contains("indexer"));
}

/// Approximate, with flow control and a saturation detector.
#[test]
fn saturation_becomes_admission() {
    let import = import(
        "kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: approx-prefix-cache-producer, parameters: {autoTune: true}}
- {type: prefix-cache-scorer, parameters: {matchLengthWeight: 0.2, prefixMatchInfoProducerName: approx}}
- {type: running-requests-size-scorer}
- {type: weighted-random-picker, parameters: {maxNumOfEndpoints: 2}}
- {type: wobble-scorer}
schedulingProfiles:
- name: main
  plugins:
  - {pluginRef: prefix-cache-scorer, weight: 2}
  - {pluginRef: running-requests-size-scorer}
  - {pluginRef: weighted-random-picker}
  - {pluginRef: wobble-scorer}
flowControl:
  maxRequests: 100
  saturationDetector: {queueDepthThreshold: 5, kvCacheUtilThreshold: 0.8}
",
    )
    .unwrap();
    assert_eq!(
        import.policy,
        "policy:
  admission:
    max_waiting: 5
    max_kv_usage_ratio: 0.8
  profiles:
    - name: \"main\"
      scorers:
        - {type: prefix-cache, weight: 2, parameters: {\"matchLengthWeight\":0.2}}
        - {type: running-requests, weight: 1}
      picker: weighted-random
"
    );
    assert_eq!(noted(&import, "wobble-scorer"), "there is no counterpart");
    assert!(noted(&import, "flowControl").contains("429"));
}

#[test]
fn what_is_no_such_file_says_so() {
    let error = |text| import(text).unwrap_err().to_string();
    assert!(error("kind: [").starts_with("not an EndpointPickerConfig"));
    assert_eq!(
        error("kind: Pod"),
        "kind is \"Pod\", EndpointPickerConfig is needed"
    );
    let missing =
        "kind: EndpointPickerConfig\nschedulingProfiles: [{name: a, plugins: [{pluginRef: b}]}]";
    assert_eq!(
        error(missing),
        "profile \"a\" refers to plugin \"b\", which is not among the plugins"
    );
    let unusable = "plugins: [{type: by-label-selector}]\nschedulingProfiles: [{name: a, plugins: [{pluginRef: by-label-selector}]}]";
    assert!(error(unusable).contains("the selector names no label"));
}
