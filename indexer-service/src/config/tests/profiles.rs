//! Profiles of the policy, and plugins that only gateways have.

use super::*;

fn policy(text: &str) -> String {
    format!("policy: {{{text}}}{GOOD}")
}

#[test]
fn numbers_of_a_profile_have_ranges() {
    for (profile, expected) in [
        (
            "cost: {beta: -1}",
            "profiles[0].cost.beta: \"-1\" is out of range, allowed: 0 to 100",
        ),
        (
            "cost: {max_sequences: 0}",
            "cost.max_sequences: \"0\" is out of range, allowed: 1 to 1000000",
        ),
        (
            "cost: {output_tokens: 2000000}",
            "cost.output_tokens: \"2000000\" is out of range",
        ),
        (
            "cost: {decode_ms_per_token: 1e5}",
            "cost.decode_ms_per_token: \"100000\" is out of range, allowed: 0 to 10000",
        ),
        (
            "cost: {adapter_load_ms: .nan}",
            "cost.adapter_load_ms: \"NaN\" is out of range, allowed: 0 to 3600000",
        ),
        (
            "max_imbalance: 0",
            "profiles[0].max_imbalance: \"0\" is out of range, allowed: 1 to 1000000",
        ),
    ] {
        let message = error(&policy(&format!("profiles: [{{name: a, {profile}}}]")));
        assert!(
            message.contains(expected),
            "expected {expected}\ngot {message}"
        );
    }
    let config = parse(&policy(
        "profiles: [{name: a, cost: {adapter_load_ms: 120}, max_imbalance: 8}]",
    ))
    .unwrap();
    let profile = &config.policy.scheduling.profiles[0];
    assert_eq!(profile.cost.unwrap().adapter_load_ms, Some(120.0));
    assert_eq!(profile.max_imbalance, Some(8));
}

#[test]
fn unknown_plugins_are_refused_unless_they_are_named_as_ones_own() {
    let profiles = "profiles: [{name: a, filters: [{type: mine}, {type: accelerator, parameters: {classes: [x]}}],
        scorers: [{type: queue, weight: 2}, {type: mine, weight: 3, parameters: {any: [1]}}]}]";
    let message = error(&policy(profiles));
    for part in [
        "policy.profiles[0].filters[0].type: no filter \"mine\"; there are: accelerator, ",
        "\n  hint: a plugin that the gateways' filter has besides those is named in policy.own_plugins too",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let config = parse(&policy(&format!("own_plugins: [mine, idle], {profiles}"))).unwrap();
    // Gateways are told what is written, parameters and all.
    let profile = &config.policy.scheduling.profiles[0];
    assert_eq!(profile.filters[0].r#type, "mine");
    assert_eq!(profile.scorers[1].parameters, r#"{"any":[1]}"#);
    let description = config.describe();
    for words in [
        "filter mine (none are left: not counted)",
        "mine with weight 3",
        "Plugins of your own: mine, idle. Their parameters can't be checked here",
        "No profile uses idle.",
    ] {
        assert!(description.contains(words), "{description}");
    }
}

#[test]
fn all_but_ones_own_plugins_is_checked_at_its_place() {
    let with = |scorers: &str| {
        error(&policy(&format!(
            "own_plugins: [mine], profiles: [{{name: a, scorers: [{{type: mine}}, {scorers}]}}]"
        )))
    };
    let message = with("{type: queue, parameters: {x: 1}}");
    assert!(
        message.contains("policy.profiles[0].scorers[1].parameters: unknown field `x`"),
        "{message}"
    );
    let message = with("{type: mine, weight: -1}");
    assert!(
        message.contains("policy.profiles[0].scorers[1].weight"),
        "{message}"
    );
    let message = with("{type: other}");
    assert!(
        message.contains("policy.profiles[0].scorers[1].type: no scorer \"other\""),
        "{message}"
    );
    let message = error(&policy("own_plugins: ['']"));
    assert!(message.contains("policy.own_plugins[0]"), "{message}");
}
