//! Says in words what a configuration means.

use std::fmt::Write;

use super::duration::show;
use super::{Config, Endpoint, Mode, Model, Policy, Publisher, SeedSource, Switch};

pub(super) fn describe(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a string can't fail.
    let _ = write_all(&mut out, config);
    out
}

fn write_all(out: &mut String, config: &Config) -> std::fmt::Result {
    write_service(out, config)?;
    write_models(out, config)?;
    write_limits(out, config)
}

fn write_service(out: &mut String, config: &Config) -> std::fmt::Result {
    writeln!(
        out,
        "Shard {:?} serves health, metrics and the API on http://{}",
        config.shard, config.listen.http
    )?;
    if !config.shards.is_empty() {
        writeln!(
            out,
            "(it has {} of {} endpoints, which are split over {}),",
            config.endpoints.len(),
            config.endpoints.len() + config.elsewhere.len(),
            config.shards.join(", ")
        )?;
    }
    writeln!(
        out,
        "and the snapshot stream for gateways on {} (HTTP/2, plain text).",
        config.listen.grpc
    )?;
    if !config.listen.grpc.ip().is_loopback() {
        writeln!(
            out,
            "The stream carries the seed: only gateways should reach that address."
        )?;
    }
    match &config.seed {
        SeedSource::Given(_) => writeln!(out, "The hash seed is in the configuration.")?,
        SeedSource::File(path) => writeln!(out, "The hash seed is read from {}.", path.display())?,
        SeedSource::Generated(path) => {
            writeln!(
                out,
                "The hash seed is kept in {} and generated when absent.",
                path.display()
            )?;
        }
    }
    Ok(())
}

fn write_models(out: &mut String, config: &Config) -> std::fmt::Result {
    for (i, model) in config.models.iter().enumerate() {
        let endpoints: Vec<&Endpoint> = config.endpoints.iter().filter(|e| e.model == i).collect();
        writeln!(
            out,
            "\nModel {:?} (pool {:?}), from {}:",
            model.id,
            model.pool,
            model.model_dir.display()
        )?;
        writeln!(out, "  requests for {}", model.names.join(", "))?;
        if !model.adapters.is_empty() {
            writeln!(out, "  adapters {}", model.adapters.join(", "))?;
        }
        write_prompts(out, model)?;
        if endpoints.is_empty() && config.shards.is_empty() {
            writeln!(
                out,
                "  no endpoint: requests for it pass to Envoy's fallback"
            )?;
        } else if endpoints.is_empty() {
            writeln!(out, "  no endpoint of this shard")?;
        }
        for endpoint in endpoints {
            write_endpoint(out, endpoint)?;
        }
    }
    for shard in &config.shards {
        let mut others = config.elsewhere.iter().filter(|(_, of)| of == shard);
        if let Some((first, _)) = others.next() {
            write!(out, "\nShard {shard:?} has {first}")?;
            for (address, _) in others {
                write!(out, ", {address}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn write_limits(out: &mut String, config: &Config) -> std::fmt::Result {
    let Config {
        policy,
        index,
        scrape,
        ..
    } = config;
    writeln!(out)?;
    match policy.mode {
        Mode::On => writeln!(
            out,
            "The filter steers: cost = (queued prefill + {} x uncached) / rate.",
            policy.beta
        )?,
        Mode::Split => writeln!(
            out,
            "The filter steers {} % of the sessions, and decides and records for the others (mode split).",
            policy.split_percent
        )?,
        Mode::Shadow => writeln!(
            out,
            "The filter decides and records, but does not steer (mode shadow)."
        )?,
        Mode::Off => writeln!(out, "The filter does nothing (mode off).")?,
    }
    for route in &policy.routes {
        write!(
            out,
            "On route {}: mode {}",
            route.route,
            route.mode.as_str()
        )?;
        match route.mode {
            Mode::Split => writeln!(out, ", {} % of the sessions.", route.split_percent)?,
            Mode::On | Mode::Shadow | Mode::Off => writeln!(out, ".")?,
        }
    }
    writeln!(
        out,
        "Prefix knowledge older than {} is ignored.",
        show(policy.max_age)
    )?;
    let bytes = policy.max_body_bytes;
    if policy.reject_bad_requests {
        writeln!(
            out,
            "Gateways answer bad requests themselves, bodies over {bytes} bytes among them."
        )?;
    } else {
        writeln!(
            out,
            "Bad requests are left to the engines; bodies over {bytes} bytes pass unread."
        )?;
    }
    write_profiles(out, policy)?;
    write_own_plugins(out, policy)?;
    for objective in &policy.objectives {
        objective.describe(policy.flow_control.is_some(), out)?;
    }
    match (&policy.admission, &policy.flow_control) {
        (Some(admission), Some(flow)) => flow.describe(admission.retry_after, out)?,
        (Some(admission), None) => writeln!(
            out,
            "Requests are answered with 429, try again after {}, while every endpoint is full.",
            show(admission.retry_after)
        )?,
        (None, _) => writeln!(
            out,
            "No endpoint is ever full: engines queue by themselves."
        )?,
    }
    writeln!(
        out,
        "The index holds at most {} bytes and publishes every {}; engines are scraped every {} to {}.",
        index.max_bytes,
        show(index.tick),
        show(scrape.interval),
        show(scrape.idle_interval)
    )?;
    writeln!(
        out,
        "A cached token takes {} us from host memory to the accelerator, and {} us from storage.",
        policy.cpu_fetch_us_per_token, policy.disk_fetch_us_per_token
    )?;
    match index.token_space {
        Switch::On => writeln!(
            out,
            "Prefixes are known by text and by token ids, which takes about as many table entries again."
        ),
        Switch::Off => writeln!(
            out,
            "Prefixes are known by text alone: requests that carry token ids are routed by load (index.token_space off)."
        ),
    }?;
    match index.approximate_tokens {
        0 => writeln!(
            out,
            "Without events, nothing is known of an engine that does not say how large its cache is."
        ),
        tokens => writeln!(
            out,
            "Without events, an engine is known by decisions, with a cache of {tokens} tokens where it does not say."
        ),
    }
}

/// How endpoints are chosen, in words.
fn write_profiles(out: &mut String, policy: &Policy) -> std::fmt::Result {
    for (at, profile) in policy.scheduling.profiles.iter().enumerate() {
        let pools = policy.scheduling.pools.iter();
        let pools: Vec<&str> = pools
            .filter(|of| of.profile == profile.name)
            .map(|of| of.pool.as_str())
            .collect();
        write!(out, "Profile {}", profile.name)?;
        match (at, pools.as_slice()) {
            (0, []) => write!(out, " (every pool that has no other)")?,
            (_, []) => write!(out, " (no pool has it)")?,
            (_, pools) => write!(out, " (pool {})", pools.join(", "))?,
        }
        for filter in &profile.filters {
            let meaning = if filter.required {
                "none are left: no endpoint"
            } else {
                "none are left: not counted"
            };
            write!(out, "; filter {} ({meaning})", filter.r#type)?;
        }
        let is_cost = profile.cost.is_some() || profile.scorers.is_empty();
        if is_cost {
            write!(out, "; lowest cost")?;
        }
        for scorer in &profile.scorers {
            let weight = scorer.weight.unwrap_or(1.0);
            if is_cost {
                write!(out, "; {} is worth {weight} ms", scorer.r#type)?;
            } else {
                write!(out, "; {} with weight {weight}", scorer.r#type)?;
            }
        }
        match profile.picker.as_str() {
            "" => writeln!(out, "; the best is taken.")?,
            picker => writeln!(out, "; picker {picker}.")?,
        }
    }
    Ok(())
}

/// Plugins of which only gateways know what they do.
fn write_own_plugins(out: &mut String, policy: &Policy) -> std::fmt::Result {
    if policy.own_plugins.is_empty() {
        return Ok(());
    }
    let is_used = |name: &String| {
        let profiles = policy.scheduling.profiles.iter();
        let mut plugins = profiles.flat_map(|of| of.filters.iter().chain(&of.scorers));
        plugins.any(|plugin| plugin.r#type == *name)
    };
    writeln!(
        out,
        "Plugins of your own: {}. Their parameters can't be checked here; a gateway whose filter lacks one says so in its log and goes on with the \
         last profiles that it could use.",
        policy.own_plugins.join(", ")
    )?;
    for name in policy.own_plugins.iter().filter(|name| !is_used(name)) {
        writeln!(out, "No profile uses {name}.")?;
    }
    Ok(())
}

/// How the model's prompts are found out.
fn write_prompts(out: &mut String, model: &Model) -> std::fmt::Result {
    let server = &model.server;
    let flags = [
        server
            .tokenizer_mode
            .as_ref()
            .map(|mode| format!("tokenizer mode {mode}")),
        server
            .content_format
            .map(|format| format!("content format {format:?}").to_lowercase()),
        server
            .default_kwargs
            .as_ref()
            .map(|kwargs| format!("template arguments {kwargs}")),
        server
            .exclude_tools_when_tool_choice_none
            .then(|| "no tools where tool_choice is none".to_owned()),
    ];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    if !flags.is_empty() {
        writeln!(out, "  engines started with {}", flags.join(", "))?;
    }
    match model.calibration {
        Switch::On => writeln!(out, "  prompts are held against its engines"),
        Switch::Off => writeln!(
            out,
            "  prompts are as its files say, whatever its engines do (calibration off)"
        ),
    }
}

fn write_endpoint(out: &mut String, endpoint: &Endpoint) -> std::fmt::Result {
    write!(out, "  endpoint {}", endpoint.address)?;
    if let Some(rank) = endpoint.rank {
        write!(out, " rank {rank}")?;
    }
    write!(
        out,
        " ({}, {} tokens/s): ",
        endpoint.role.as_str(),
        endpoint.prefill_tokens_per_s
    )?;
    let Some(events) = &endpoint.events else {
        return writeln!(out, "no events, known from decisions alone");
    };
    match &events.publisher {
        Publisher::Connect(address) => write!(out, "events from {address}")?,
        Publisher::Bind(address) => write!(out, "events awaited on {address}")?,
    }
    if !events.topic.is_empty() {
        write!(out, " with topic {:?}", events.topic)?;
    }
    match &events.replay {
        Some(replay) => writeln!(out, ", lost ones replayed from {replay}"),
        None => writeln!(out, ", no replay: a lost event drops what is known of it"),
    }
}
