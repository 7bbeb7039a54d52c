-- Health of provisioning.cattle.io/Cluster for Argo CD: resource.customizations.health.provisioning.cattle.io_Cluster
-- in ConfigMap argocd-cm. Ready is the answer; what a person has to change is Degraded, what goes on by itself Progressing.
local function find(conditions, kind)
  for _, one in ipairs(conditions or {}) do
    if one.type == kind then
      return one
    end
  end
  return nil
end

local status = obj.status
if status == nil or status.conditions == nil then
  return { status = "Progressing", message = "the manager has not observed it yet" }
end

local generation = obj.metadata.generation
if generation ~= nil and status.observedGeneration ~= nil and status.observedGeneration < generation then
  return { status = "Progressing", message = "the manager has not observed this change yet" }
end

local accepted = find(status.conditions, "Accepted")
if accepted ~= nil and accepted.status == "False" then
  return { status = "Degraded", message = accepted.message }
end

local ready = find(status.conditions, "Ready")
if ready == nil then
  return { status = "Progressing", message = "the manager has not observed it yet" }
end
local message = ready.message
if status.waiting ~= nil and status.waiting["for"] ~= nil then
  message = "waits for " .. status.waiting["for"]
end
if ready.reason == "Refused" then
  return { status = "Degraded", message = ready.message }
end
if ready.status == "True" then
  if status.phase == "Updating" then
    return { status = "Progressing", message = message }
  end
  if obj.spec ~= nil and obj.spec.paused == true then
    return { status = "Suspended", message = "changes of its machines are paused" }
  end
  return { status = "Healthy", message = message }
end
if ready.status == "Unknown" or ready.reason == "Degraded" then
  return { status = "Degraded", message = message }
end
return { status = "Progressing", message = message }
